"""Fine-tuning with gradual unfreezing; every parameter steps inside the backward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(37)

EPOCHS = 6
BATCH = 32
CLIP = 0.1


class Backbone(nn.Module):
    def __init__(self, n_in=14, hidden=28):
        super().__init__()
        self.block1 = nn.Sequential(nn.Linear(n_in, hidden), nn.GELU())
        self.block2 = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU())
        self.head = nn.Linear(hidden, 3)

    def forward(self, x):
        return self.head(self.block2(self.block1(x)))


class InBackwardOptimizer:
    """Clips, steps and drops the gradient of one parameter as soon as it is complete."""

    def __init__(self, total_steps):
        self.total_steps = total_steps
        self.state = {}

    def add(self, module, lr):
        for param in module.parameters():
            param.requires_grad_(True)
            optimizer = torch.optim.AdamW([param], lr=lr)
            scheduler = torch.optim.lr_scheduler.LinearLR(
                optimizer, start_factor=1.0, end_factor=0.1, total_iters=self.total_steps)
            self.state[param] = (optimizer, scheduler)
            param.register_post_accumulate_grad_hook(self.apply)

    def apply(self, param):
        optimizer, scheduler = self.state[param]
        param.grad.clamp_(-CLIP, CLIP)
        optimizer.step()
        scheduler.step()
        param.grad = None

    def steps_of(self, module):
        param = next(module.parameters())
        if param not in self.state:
            return 0
        return int(self.state[param][0].state[param]["step"])


def make_data(n=384, n_in=14):
    gen = torch.Generator().manual_seed(14)
    means = torch.randn(3, n_in, generator=gen)
    y = torch.randint(0, 3, (n,), generator=gen)
    return means[y] + 0.9 * torch.randn(n, n_in, generator=gen), y


def main():
    x, y = make_data()
    train_x, train_y = x[:320], y[:320]
    model = Backbone()
    for param in model.parameters():
        param.requires_grad_(False)
    steps_per_epoch = len(train_x) // BATCH
    optimizer = InBackwardOptimizer(total_steps=EPOCHS * steps_per_epoch)
    schedule = {0: (model.head, 1e-2), 2: (model.block2, 5e-3), 4: (model.block1, 2e-3)}
    gen = torch.Generator().manual_seed(1)

    for epoch in range(EPOCHS):
        if epoch in schedule:
            optimizer.add(*schedule[epoch])
        total = 0.0
        for rows in torch.randperm(len(train_x), generator=gen).split(BATCH):
            loss = F.cross_entropy(model(train_x[rows]), train_y[rows])
            loss.backward()
            total += loss.item()
        counts = [optimizer.steps_of(m) for m in (model.head, model.block2, model.block1)]
        print(f"epoch {epoch}  loss {total / steps_per_epoch:.4f}  steps head/block2/block1 {counts}")

    with torch.no_grad():
        accuracy = (model(x[320:]).argmax(1) == y[320:]).float().mean().item()
    left_over = sum(p.grad is not None for p in model.parameters())
    print(f"accuracy {accuracy:.3f}  gradients still held {left_over}")


if __name__ == "__main__":
    main()
