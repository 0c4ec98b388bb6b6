"""Feature noise by a forward hook inside checkpointed blocks: the recomputation draws the same noise again."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

SIGMA = 0.1


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.tanh(self.lin(x))


class Tower(nn.Module):
    def __init__(self, save_memory, dim=12, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 2)
        self.save_memory = save_memory

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.save_memory else block(x)
        return self.head(x)


calls = {"noise": 0}


def add_noise(module, args, output):
    """Training only. With a checkpoint it runs twice; the RNG state is restored, so both runs agree."""
    if not module.training:
        return None
    calls["noise"] += 1
    return output + SIGMA * torch.randn_like(output)


def train(save_memory):
    torch.manual_seed(111)
    net = Tower(save_memory)
    for block in net.blocks:
        block.lin.register_forward_hook(add_noise)
    calls["noise"] = 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(128, 12)
    y = (x[:, 0] > x[:, 1]).long()
    for step in range(20):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        clean = nn.functional.cross_entropy(net(x), y).item()
    return net, loss.item(), clean, calls["noise"]


plain, loss_a, clean_a, n_a = train(False)
lean, loss_b, clean_b, n_b = train(True)
print(f"plain:        loss {loss_a:.4f}  clean {clean_a:.4f}  hook calls {n_a}")
print(f"checkpointed: loss {loss_b:.4f}  clean {clean_b:.4f}  hook calls {n_b}")
same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(plain.parameters(), lean.parameters()))
print("both runs end with the same weights:", same)
