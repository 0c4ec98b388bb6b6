"""Perceptual loss: a frozen feature network judges a generator; hooks on its frozen layers watch the feedback."""
import torch
from torch import nn

torch.manual_seed(108)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 3, padding=1)
        self.c2 = nn.Conv2d(6, 6, 3, padding=1)

    def forward(self, img):
        a = torch.relu(self.c1(img))
        return a, torch.relu(self.c2(a))


features = Features().eval().requires_grad_(False)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8)))

feedback = {"c1": [], "c2": []}


def watch(name):
    def hook(module, grad_input, grad_output):
        # the layer is frozen, but the gradient passes through it on the way to the generator
        feedback[name].append(grad_input[0].norm().item())
    return hook


handles = [getattr(features, n).register_full_backward_hook(watch(n)) for n in feedback]

ramp = torch.linspace(0, 1, 8).repeat(8, 1)
target = torch.stack([ramp, ramp.t()]).unsqueeze(1)
with torch.no_grad():
    wanted = features(target)

optimizer = torch.optim.Adam(generator.parameters(), lr=5e-3)
z = torch.randn(2, 4)
first = None
for step in range(100):
    got = features(generator(z))
    loss = sum(nn.functional.mse_loss(g, w) for g, w in zip(got, wanted))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = loss.item() if first is None else first
    if step % 25 == 24:
        print(f"step {step + 1}: perceptual loss {loss.item():.5f}  feedback c2 {feedback['c2'][-1]:.5f}")

for h in handles:
    h.remove()
print(f"loss {first:.4f} -> {loss.item():.4f}")
print(f"entries: c1 {len(feedback['c1'])}, c2 {len(feedback['c2'])}")
print("frozen weights have a gradient:", any(p.grad is not None for p in features.parameters()))
print(f"image error {nn.functional.mse_loss(generator(z), target).item():.4f}")
