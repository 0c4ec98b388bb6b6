"""Frozen backbone with a trained head; hooks on the frozen layers only watch the activations."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Backbone(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.l1 = nn.Linear(12, dim)
        self.l2 = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.l2(torch.relu(self.l1(x))))


class Watcher:
    """Mean absolute activation of each layer. Returns nothing, changes nothing."""

    def __init__(self, module):
        self.sums, self.calls = {}, {}
        self.handles = [
            m.register_forward_hook(lambda mod, args, out, name=n: self.note(name, out))
            for n, m in module.named_modules() if isinstance(m, nn.Linear)
        ]

    def note(self, name, out):
        self.sums[name] = self.sums.get(name, 0.0) + out.abs().mean().item()
        self.calls[name] = self.calls.get(name, 0) + 1

    def means(self):
        return {n: round(self.sums[n] / self.calls[n], 4) for n in self.sums}


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 12)
    y = (x[:, :3] + x[:, 3:6]).argmax(-1)
    backbone = Backbone().requires_grad_(False).eval()
    head = nn.Linear(32, 3)
    frozen_copy = {k: v.clone() for k, v in backbone.state_dict().items()}
    watch = Watcher(backbone)
    grads = []
    # a gradient hook for the part that is trained; the frozen part has no gradients to hook
    for p in list(backbone.parameters()) + list(head.parameters()):
        if p.requires_grad:
            p.register_hook(lambda g: grads.append(g.norm().item()))
    opt = torch.optim.SGD(head.parameters(), lr=0.5)
    for step in range(50):
        with torch.no_grad():
            z = backbone(x)
        loss = F.cross_entropy(head(z), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step:2d} loss {loss.item():.4f} gradients seen {len(grads)}")
    print("activations of the frozen layers:", watch.means())
    print("calls:", watch.calls)
    same = all(torch.equal(v, frozen_copy[k]) for k, v in backbone.state_dict().items())
    print("backbone unchanged:", same, "- backbone gradients:", [p.grad for p in backbone.parameters()])


if __name__ == "__main__":
    main()
