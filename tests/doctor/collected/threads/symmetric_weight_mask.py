"""Graph layer with a symmetric weight; edges outside of the mask must not be trained."""
import torch
from torch import nn
from torch.nn.utils import parametrize

torch.manual_seed(0)
N = 6


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(N, N, bias=False)
        parametrize.register_parametrization(self.mix, "weight", Symmetric())
        self.out = nn.Linear(N, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.mix(x)))


allowed = torch.eye(N)
for i in range(N - 1):
    allowed[i, i + 1] = allowed[i + 1, i] = 1.0
hook_calls = []


def mask_edges(grad):
    hook_calls.append(1)
    return grad * allowed


model = GraphNet()
model.mix.weight.register_hook(mask_edges)
start = model.mix.weight.detach().clone()

opt = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(50):
    x = torch.randn(64, N)
    y = (x[:, :1] * x[:, 3:4]).tanh()
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

delta = (model.mix.weight.detach() - start).abs()
print(f"loss {loss.item():.4f}, still symmetric: {torch.allclose(model.mix.weight, model.mix.weight.t())}")
print(f"mean change of allowed edges   {delta[allowed == 1].mean():.4f}")
print(f"mean change of forbidden edges {delta[allowed == 0].mean():.4f}")
print("backward passes: 50, hook calls:", len(hook_calls))
