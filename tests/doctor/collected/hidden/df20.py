"""Sparse hidden code: an L1 penalty on an inner activation, memory saved by checkpointing."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class CodeBlock(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.enc = nn.Linear(dim, width)
        self.act = nn.ReLU()
        self.dec = nn.Linear(width, dim)

    def forward(self, x):
        return self.dec(self.act(self.enc(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 16)
        self.block = CodeBlock(16, 64)
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        h = self.inp(x)
        h = h + checkpoint(self.block, h, use_reentrant=True)
        return self.out(h)


def main():
    torch.manual_seed(0)
    model = Model()
    code = {}
    # the hook hands the code over with its graph, the penalty needs the gradient
    model.block.act.register_forward_hook(lambda m, args, out: code.update(latest=out))

    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    x = torch.randn(128, 8)
    for step in range(60):
        recon = model(x)
        error = nn.functional.mse_loss(recon, x)
        penalty = code["latest"].abs().mean()
        loss = error + 3.0 * penalty
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step:2d}  error {error.item():.4f}  penalty {penalty.item():.4f}")

    with torch.no_grad():
        model.block(model.inp(x))
    latest = code["latest"]
    share = (latest > 1e-3).float().mean().item()
    print(f"end: error {error.item():.4f}, mean code {latest.abs().mean().item():.4f}")
    print("code is", "sparse" if share < 0.1 else "dense")


if __name__ == "__main__":
    main()
