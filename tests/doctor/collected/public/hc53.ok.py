"""AMP training in which clipping and weight averaging hang on the optimizer, not on the loop."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(19)

MAX_NORM = 0.5


class Classifier(nn.Module):
    def __init__(self, n_in=12, hidden=32, n_classes=4):
        super().__init__()
        self.fc1 = nn.Linear(n_in, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, n_classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class StepExtras:
    """Runs only when the scaler lets the step happen; the gradients are unscaled by then."""

    def __init__(self, model, optimizer):
        self.model = model
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95))
        self.norms_before, self.norms_after = [], []
        optimizer.register_step_pre_hook(self.clip)
        optimizer.register_step_post_hook(self.average)

    def clip(self, optimizer, args, kwargs):
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        after = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm()
        self.norms_before.append(norm.item())
        self.norms_after.append(after.item())

    def average(self, optimizer, args, kwargs):
        self.ema.update_parameters(self.model)


def make_data(n=512, n_in=12, n_classes=4):
    gen = torch.Generator().manual_seed(5)
    means = 2.0 * torch.randn(n_classes, n_in, generator=gen)
    y = torch.randint(0, n_classes, (n,), generator=gen)
    return means[y] + torch.randn(n, n_in, generator=gen), y


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    x, y = make_data()
    loader = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32, shuffle=True,
                        generator=torch.Generator().manual_seed(0))
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    extras = StepExtras(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 20)

    batches = 0
    for epoch in range(3):
        for xb, yb in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(xb), yb)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            batches += 1
        print(f"epoch {epoch}  scale 2^{torch.tensor(scaler.get_scale()).log2().item():.0f}  loss {loss.item():.4f}")

    applied = len(extras.norms_before)
    print(f"batches {batches}, steps applied {applied}, averaged {int(extras.ema.n_averaged)}")
    print(f"largest norm before {max(extras.norms_before):.3f}, after {max(extras.norms_after):.3f}")
    print(f"accuracy {accuracy(model, x[384:], y[384:]):.3f}, averaged {accuracy(extras.ema, x[384:], y[384:]):.3f}")


if __name__ == "__main__":
    main()
