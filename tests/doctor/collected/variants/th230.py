"""Optimise a network with torch.fx for deployment and watch its inputs for drift."""
import torch
from torch import fx, nn


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc, self.drop = nn.Linear(dim, dim), nn.Dropout(0.1)

    def forward(self, x):
        return x + self.drop(torch.relu(self.fc(x)))


class Ranker(nn.Module):
    def __init__(self, dim=12, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.score = nn.Linear(dim, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.score(x)


class DriftMonitor:
    def __init__(self):
        self.reset()

    def reset(self):
        self.batches, self.total = 0, 0.0

    def __call__(self, module, args, output):
        self.batches += 1
        self.total = self.total + output.mean()

    def mean(self):
        return float(self.total) / self.batches if self.batches else float("nan")


def remove_dropout(model):
    traced = fx.symbolic_trace(model)
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.recompile()
    return traced


class Service:
    def __init__(self, model):
        self.monitor = DriftMonitor()
        model.blocks[-1].register_forward_hook(self.monitor)
        self.model = remove_dropout(model.eval())
        self.monitor.reset()

    @torch.no_grad()
    def rank(self, batch):
        return self.model(batch).squeeze(-1).argsort(descending=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    service = Service(Ranker())
    for day in range(4):
        order = service.rank(torch.randn(10, 12) + day)
        print(f"day {day} best {order[0].item()} batches {service.monitor.batches} mean {service.monitor.mean():.3f}")
