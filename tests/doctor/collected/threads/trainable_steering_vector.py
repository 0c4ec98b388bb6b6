"""Learn a steering vector (and a new head) on top of a frozen model."""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
D = 16


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, D)
        self.mid = nn.Linear(D, D)
        self.top = nn.Linear(D, D)
        self.head = nn.Linear(D, 2)

    def forward(self, x):
        x = torch.tanh(self.inp(x))
        x = torch.tanh(self.mid(x))
        return self.head(torch.tanh(self.top(x)))


class Steering:
    def __init__(self, module, dim):
        self.vector = nn.Parameter(torch.zeros(dim))
        module.register_forward_hook(self)

    def __call__(self, module, args, output):
        return output + self.vector


model = Backbone().requires_grad_(False)
model.head = nn.Linear(D, 2)
steer = Steering(model.mid, D)
opt = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)

x = torch.randn(256, 6)
y = (x[:, 0] * x[:, 1] > 0).long()
for step in range(101):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(f"step {step:3d} loss {loss.item():.4f} |vector| {steer.vector.norm():.4f} "
              f"|its gradient| {steer.vector.grad.norm():.4f}")

with torch.no_grad():
    steered = model(x)
    model.mid._forward_hooks.clear()
    plain = model(x)
print(f"effect of the learned vector on the logits: {(steered - plain).abs().max():.6f}")
