"""Per-sample gradient norms from hooks (activation norm x output-gradient norm), for DP clipping."""
import torch
from torch import nn

torch.manual_seed(0)
CLIP = 1.0


class SampleNorms:
    """|grad_i|^2 of a Linear layer = |g_i|^2 * (|a_i|^2 + 1)."""

    def __init__(self, model):
        self.acts, self.sq = {}, 0.0
        for m in model.modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(self.save)
                m.register_full_backward_hook(self.collect)

    def save(self, module, args, out):
        self.acts[module] = args[0].detach()

    def collect(self, module, grad_input, grad_output):
        a, g = self.acts[module], grad_output[0]
        self.sq = self.sq + g.pow(2).sum(1) * (a.pow(2).sum(1) + 1)

    def norms(self):
        out, self.sq = self.sq.sqrt(), 0.0
        return out


model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
norms_of = SampleNorms(model)
x = (3 * torch.randn(64, 12)).requires_grad_()
y = torch.randint(0, 4, (64,))
criterion = nn.CrossEntropyLoss()

loss = criterion(model(x), y)
loss.backward()
norms = norms_of.norms()
print(f"per-sample norms from hooks: min {norms.min():.4f} max {norms.max():.4f}")
print(f"samples above the clipping norm {CLIP}: {int((norms > CLIP).sum())} of 64")

for i in (0, 1, 2):
    model.zero_grad()
    criterion(model(x[i:i + 1]), y[i:i + 1]).backward()
    norms_of.norms()
    true = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    print(f"sample {i}: from hook {norms[i]:.4f}, from its own backward {true:.4f}")
