"""Small normalising flow; the scale-and-shift layers initialise themselves from the first batch and then let go."""
import math
import torch
from torch import nn

torch.manual_seed(105)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.initialised = 0
        self._init_handle = self.register_forward_pre_hook(ActNorm.first_batch)

    @staticmethod
    @torch.no_grad()
    def first_batch(module, args):
        x = args[0]
        module.shift.copy_(-x.mean(dim=0))
        module.log_scale.copy_(-(x.std(dim=0) + 1e-6).log())
        module.initialised += 1
        module._init_handle.remove()            # once is enough

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Coupling(nn.Module):
    def __init__(self, dim, flip):
        super().__init__()
        self.flip, self.half = flip, dim // 2
        self.net = nn.Sequential(nn.Linear(self.half, 24), nn.Tanh(), nn.Linear(24, dim))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        a, b = (b, a) if self.flip else (a, b)
        log_s, t = self.net(a).chunk(2, dim=1)
        log_s = torch.tanh(log_s)
        b = b * log_s.exp() + t
        return torch.cat((b, a) if self.flip else (a, b), dim=1), log_s.sum(dim=1)


layers = nn.ModuleList([ActNorm(2), Coupling(2, False), ActNorm(2), Coupling(2, True)])


def nll(x):
    total = 0.0
    for layer in layers:
        x, logdet = layer(x)
        total = total + logdet
    return (0.5 * x.pow(2).sum(dim=1) + math.log(2 * math.pi) - total).mean()


data = torch.randn(600, 2)
data = torch.stack([5 + 2 * data[:, 0], data[:, 1] + 0.5 * data[:, 0] ** 2], dim=1)
optimizer = torch.optim.Adam(layers.parameters(), lr=5e-3)
for epoch in range(8):
    for i in range(0, 600, 100):
        loss = nll(data[i:i + 100])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 3 == 0:
        print(f"epoch {epoch}: nll {loss.item():.3f}")
print("initialisations:", [m.initialised for m in layers if isinstance(m, ActNorm)])
