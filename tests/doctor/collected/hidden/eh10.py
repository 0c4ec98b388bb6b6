"""Guard for an auxiliary branch: it must not run in evaluation. The guard's hook is expected to stay silent.
The reference pass uses .forward on purpose, so that no hook of the module takes part in it."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class AuxNet(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.low = nn.Linear(8, dim)
        self.high = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, 3)
        self.aux = nn.Linear(dim, 3)

    def forward(self, x):
        h = torch.relu(self.low(x))
        out = self.head(torch.relu(self.high(h)))
        return (out, self.aux(h)) if self.training else out


class CallGuard:
    def __init__(self, module):
        self.calls = 0
        self.handle = module.register_forward_pre_hook(self.count)

    def count(self, module, args):
        self.calls += 1

    def take(self):
        n, self.calls = self.calls, 0
        return n


def main():
    torch.manual_seed(0)
    x = torch.randn(200, 8)
    y = x[:, :3].argmax(-1)
    model = AuxNet()
    guard = CallGuard(model.aux)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(50):
        out, aux = model(x)
        loss = F.cross_entropy(out, y) + 0.3 * F.cross_entropy(aux, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"training: loss {loss.item():.4f}, calls of the auxiliary head {guard.take()}")
    model.eval()
    with torch.no_grad():
        for batch in x.split(20):
            model(batch)
        print("evaluation: calls of the auxiliary head", guard.take())
        # noise on the first layer; the reference without noise comes from .forward
        gen = torch.Generator().manual_seed(1)
        handle = model.low.register_forward_hook(
            lambda m, a, o: o + 0.5 * torch.randn(o.shape, generator=gen))
        noisy = model(x)
        clean_low = model.low.forward(x)
        clean = model.head(torch.relu(model.high(torch.relu(clean_low))))
        handle.remove()
        exact = model(x)
    print("reference equals the pass without hook:", torch.allclose(clean, exact))
    print(f"predictions changed by the noise: {(noisy.argmax(-1) != clean.argmax(-1)).float().mean().item():.3f}")
    guard.handle.remove()


if __name__ == "__main__":
    main()
