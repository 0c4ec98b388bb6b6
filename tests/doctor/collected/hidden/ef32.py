"""Clip the gradient at a bottleneck and log how often and how strongly the clip was needed."""
import torch
import torch.nn as nn
import torch.nn.functional as F

LIMIT = 0.02


class Bottleneck(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
        self.up = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))
        self.code = None

    def forward(self, x):
        self.code = self.down(x)
        return self.up(torch.tanh(self.code))


def clip(grad):
    norm = grad.norm()
    return grad * (LIMIT / norm) if norm > LIMIT else grad


def step_model(model, opt, x):
    out = model(x)
    loss = F.mse_loss(out, x)
    if model.code.requires_grad:
        # .grad keeps what arrives from the decoder, the hook then clips it on the way to the encoder
        model.code.retain_grad()
        model.code.register_hook(clip)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item(), model.code.grad.norm().item()


def batches(n, gen):
    mixing = torch.randn(4, 12, generator=gen)
    for i in range(n):
        scale = 5.0 if i % 7 == 3 else 1.0  # some batches are far out
        yield scale * (torch.randn(32, 4, generator=gen) @ mixing)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(12)
    model = Bottleneck()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    raw = []
    for i, x in enumerate(batches(140, gen)):
        loss, norm = step_model(model, opt, x)
        raw.append(norm)
        if i % 35 == 0:
            print(f"batch {i:3d} loss {loss:8.3f} raw gradient at the code {norm:.4f}")
    over = [n for n in raw if n > LIMIT * 1.0001]
    print(f"raw norm: max {max(raw):.4f} mean {sum(raw) / len(raw):.4f}")
    print(f"clipping was needed in {len(over)} of {len(raw)} batches")
    print("suggested limit:", "keep" if len(over) < 0.2 * len(raw) else "raise")


if __name__ == "__main__":
    main()
