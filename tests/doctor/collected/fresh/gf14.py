"""Vanishing gradients in an RNN: log the gradient norm of the hidden state at every time step."""
import torch
import torch.nn as nn

torch.manual_seed(14)


class PlainRNN(nn.Module):
    def __init__(self, d_in=3, d=10, init_scale=0.6):
        super().__init__()
        self.cell = nn.RNNCell(d_in, d)
        self.out = nn.Linear(d, 1)
        nn.init.orthogonal_(self.cell.weight_hh, gain=init_scale)
        self.grad_norms = {}

    def forward(self, x, watch=False):
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            if watch:
                # one entry per time step, filled during backward
                h.register_hook(lambda g: self.grad_norms.update({t: g.norm().item()}))
        return self.out(h).squeeze(-1)


def make_batch(n, steps, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, steps, 3, generator=g)
    return x, x[:, 0, 0]          # the answer is in the first step


def report(norms, steps):
    print("  entries:", len(norms))
    for t in range(0, steps, 3):
        value = norms.get(t)
        print(f"  t={t:2d}", "no gradient" if value is None else f"{value:.2e}")
    missing = [t for t in range(steps) if t not in norms]
    if missing:
        print(f"  gradient does not reach {len(missing)} of {steps} steps")


steps = 12
for scale in (0.6, 1.0):
    torch.manual_seed(1)
    model = PlainRNN(init_scale=scale)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for it in range(20):
        x, y = make_batch(32, steps, it)
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    x, y = make_batch(64, steps, 999)
    model.zero_grad()
    nn.functional.mse_loss(model(x, watch=True), y).backward()
    print(f"init scale {scale}: loss {loss.item():.3f}")
    report(model.grad_norms, steps)
