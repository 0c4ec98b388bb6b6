"""Look for vanishing gradients in a deep MLP: the gradient norm of every weight matrix is written down per step."""
import warnings
import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(30)


class DeepNet(nn.Module):
    def __init__(self, width=24, depth=5):
        super().__init__()
        sizes = [10] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.readout = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.readout(x)


class GradientJournal:
    """Hooks on the weights of the linear layers; each one notes the norm of the finished gradient."""

    def __init__(self, model):
        self.rows = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.rows[name] = []
                self.handles.append(module.weight.register_post_accumulate_grad_hook(self.note(name)))

    def note(self, name):
        def hook(weight):
            self.rows[name].append(weight.grad.norm().item())
        return hook

    def mean(self):
        return {name: sum(v) / max(1, len(v)) for name, v in self.rows.items()}


def train(model, x, y, steps=25):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)                    # gradient buffers are allocated once
    for step in range(steps):
        optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"step {step:2d} loss {loss.item():.4f}")


x = torch.randn(128, 10)
y = x[:, 0] - 0.5 * x[:, 1] * x[:, 2]
model = DeepNet()
journal = GradientJournal(model)
train(model, x, y)

means = journal.mean()
for name, value in means.items():
    print(f"{name:10s} mean weight-gradient norm {value:.5f}  (entries {len(journal.rows[name])})")
dead = [n for n, v in means.items() if v < 1e-4]
print("layers without a gradient:", dead if dead else "none")
for h in journal.handles:
    h.remove()
