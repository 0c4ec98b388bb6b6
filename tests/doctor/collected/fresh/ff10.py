"""Influence scores: gradient of each training example against the gradient of a validation batch."""
import torch
from torch import nn

torch.manual_seed(10)


class Probe(nn.Module):
    """Linear probe with one hidden layer on top of frozen features."""

    def __init__(self, dim=12, classes=2):
        super().__init__()
        self.hidden = nn.Linear(dim, 8)
        self.out = nn.Linear(8, classes)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


model = Probe()
recorded = {}


def recorder(name):
    def hook(p):
        recorded[name] = p.grad.detach().clone()
    return hook


for name, p in model.named_parameters():
    p.register_post_accumulate_grad_hook(recorder(name))

x = torch.randn(24, 12)
y = (x[:, 0] > 0).long()
y[:4] = 1 - y[:4]  # mislabelled examples
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(25):
    opt.zero_grad()
    nn.functional.cross_entropy(model(x[4:]), y[4:]).backward()
    opt.step()


def gradient_of(xb, yb):
    """Gradient of the loss as one vector; .grad of the model is left alone."""
    loss = nn.functional.cross_entropy(model(xb), yb)
    torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([recorded[n].flatten() for n, _ in model.named_parameters()])


xv = torch.randn(40, 12)
validation = gradient_of(xv, (xv[:, 0] > 0).long())
scores = torch.stack([gradient_of(x[i:i + 1], y[i:i + 1]) @ validation for i in range(24)])
print("score of mislabelled examples", [round(s, 4) for s in scores[:4].tolist()])
print("score of correct examples    ", [round(s, 4) for s in scores[4:8].tolist()])
print(f"standard deviation of the scores {scores.std().item():.6f}")
print("examples can be told apart:", scores.std().item() > 1e-6)
