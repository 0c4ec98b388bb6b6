"""Per-tensor gradient clipping while the backward pass runs (no second loop over the parameters)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Regressor(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, width), nn.Tanh(),
            nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class LayerClipper:
    """Clips the gradient of each tensor to max_norm as soon as it is complete."""

    def __init__(self, model, max_norm):
        self.max_norm = max_norm
        self.count = 0
        self.handles = [p.register_post_accumulate_grad_hook(self.clip) for p in model.parameters()]

    def clip(self, param):
        grad = param.grad
        norm = grad.norm()
        if norm > self.max_norm:
            grad.mul_(self.max_norm / norm)
            self.count += 1

    def close(self):
        for h in self.handles:
            h.remove()


def batches(n, gen):
    for _ in range(n):
        x = torch.randn(64, 6, generator=gen)
        noise = torch.randn(64, generator=gen)
        # heavy tails: from time to time a target is far away
        y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.05 * noise ** 3
        yield x, y


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(7)
    model = Regressor()
    clipper = LayerClipper(model, max_norm=0.5)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    history = []
    for step, (x, y) in enumerate(batches(300, gen)):
        loss = F.smooth_l1_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(loss.item())
        if step % 100 == 99:
            print(f"step {step + 1} loss {sum(history[-50:]) / 50:.4f} clipped so far {clipper.count}")
    clipper.close()
    for name, p in model.named_parameters():
        if name.endswith("weight"):
            print(f"{name:14s} norm {p.norm().item():.2f}")
    print("converged:", sum(history[-50:]) / 50 < 0.15)


if __name__ == "__main__":
    main()
