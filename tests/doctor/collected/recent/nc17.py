"""Few-shot sine regression with a sparse initialisation found by meta-learning.

A random 40 % of the weights of every matrix is kept, all others are zero. Adaptation to a
task is one gradient step on the support set; the pruned entries must not come back, since
the adapted network is exported to a device that stores only the kept ones.
"""
import torch
from torch import nn
from torch.func import functional_call

torch.set_num_threads(1)
INNER_LR, DENSITY = 0.05, 0.4


class SineNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


class SparsePattern:
    def __init__(self, model, density):
        self.masks = {}
        for name, p in model.named_parameters():
            if p.dim() == 2:
                mask = (torch.rand_like(p) < density).float()
                self.masks[name] = mask
                with torch.no_grad():
                    p.mul_(mask)
                self.attach(p, mask)

    def attach(self, p, mask):
        @torch.no_grad()
        def keep_pattern(param):
            param.grad.mul_(mask)
        p.register_post_accumulate_grad_hook(keep_pattern)

    def density(self, params):
        kept = sum(int((params[n] != 0).sum()) for n in self.masks)
        return kept / sum(m.numel() for m in self.masks.values())


def sample_task(gen, k=10):
    amp = 0.5 + 2 * torch.rand(1, generator=gen)
    phase = 3.14 * torch.rand(1, generator=gen)
    x = torch.rand(2 * k, 1, generator=gen) * 6 - 3
    y = amp * torch.sin(x + phase)
    return x[:k], y[:k], x[k:], y[k:]


def adapt(model, x, y, create_graph):
    params = dict(model.named_parameters())
    loss = nn.functional.mse_loss(functional_call(model, params, (x,)), y)
    grads = torch.autograd.grad(loss, tuple(params.values()), create_graph=create_graph)
    return {n: p - INNER_LR * g for (n, p), g in zip(params.items(), grads)}


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = SineNet()
    pattern = SparsePattern(model, DENSITY)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for it in range(60):
        opt.zero_grad()
        for _ in range(4):
            xs, ys, xq, yq = sample_task(gen)
            fast = adapt(model, xs, ys, create_graph=True)
            loss = nn.functional.mse_loss(functional_call(model, fast, (xq,)), yq)
            (loss / 4).backward()
        opt.step()
    xs, ys, xq, yq = sample_task(gen)
    fast = adapt(model, xs, ys, create_graph=False)
    with torch.no_grad():
        query = nn.functional.mse_loss(functional_call(model, fast, (xq,)), yq).item()
    print(f"query loss on a new task {query:.3f}")
    print(f"density of the meta-parameters   {pattern.density(dict(model.named_parameters())):.2f}")
    print(f"density of the adapted network   {pattern.density(fast):.2f}")


if __name__ == "__main__":
    main()
