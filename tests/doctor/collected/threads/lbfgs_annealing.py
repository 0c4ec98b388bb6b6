"""Fit a curve with LBFGS; the smoothing width is annealed over the steps."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
STEPS = 30


class Soft(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = 1.0

    def forward(self, x):
        return torch.tanh(x / self.width)


class Anneal:
    """Linear schedule from 1.0 to 0.1 over `total` steps."""

    def __init__(self, module, total, start=1.0, end=0.1):
        self.t, self.total, self.start, self.end = 0, total, start, end
        module.register_forward_pre_hook(self)

    def __call__(self, module, args):
        frac = min(self.t / self.total, 1.0)
        module.width = self.start + frac * (self.end - self.start)
        self.t += 1


soft = Soft()
model = nn.Sequential(nn.Linear(1, 16), soft, nn.Linear(16, 1))
anneal = Anneal(soft, STEPS)
x = torch.linspace(-2, 2, 80).unsqueeze(1)
y = torch.sign(torch.sin(3 * x)) * 0.5
opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    return loss


for step in range(STEPS):
    loss = opt.step(closure)
    if step < 5 or step % 10 == 9:
        print(f"step {step:2d}/{STEPS} loss {loss.item():.5f} width {soft.width:.3f} schedule position {anneal.t}")
