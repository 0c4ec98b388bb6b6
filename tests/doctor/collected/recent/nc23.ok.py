"""Input statistics of checkpointed blocks, collected with forward hooks during training.

Blocks are run again in the backward pass; the collector only looks at the first run.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


def in_backward():
    return torch._C._current_graph_task_id() != -1


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.fc(self.norm(x))


class Net(nn.Module):
    def __init__(self, dim=20, depth=3):
        super().__init__()
        self.inp = nn.Linear(6, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 2)
        self.save_memory = True

    def forward(self, x):
        h = self.inp(x)
        for b in self.blocks:
            h = checkpoint(b, h, use_reentrant=False) if self.save_memory else b(h)
        return self.out(h)


class Collector:
    def __init__(self, model):
        self.rows = {}
        self.second_runs = 0
        for name, m in model.named_modules():
            if isinstance(m, nn.GELU):
                m.register_forward_hook(self.make(name))

    def make(self, name):
        def hook(module, args, out):
            if in_backward():
                self.second_runs += 1
                return
            n, total, sq = self.rows.get(name, (0, 0.0, 0.0))
            a = args[0].detach().double()
            self.rows[name] = (n + a.numel(), total + a.sum().item(), sq + a.pow(2).sum().item())
        return hook


def train(save_memory):
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = (x[:, 0] * x[:, 1] > x[:, 2]).long()
    model = Net()
    model.save_memory = save_memory
    stats = Collector(model)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(30):
        idx = torch.randint(0, len(x), (50,))
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item(), stats


def main():
    loss_a, plain = train(save_memory=False)
    loss_b, saved = train(save_memory=True)
    print(f"loss {loss_a:.5f} {loss_b:.5f}   second runs skipped {saved.second_runs}")
    for name, (n, total, sq) in saved.rows.items():
        same = plain.rows[name][0] == n and abs(plain.rows[name][1] - total) < 1e-2
        print(f"{name:<14} values {n}  mean {total / n:+.4f}  rms {(sq / n) ** 0.5:.4f}  same {same}")
        assert same


if __name__ == "__main__":
    main()
