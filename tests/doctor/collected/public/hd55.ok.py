"""Graph network for a citation-like graph with a profiler built on global module hooks."""
from collections import Counter
from contextlib import contextmanager

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbours = nn.Linear(inputs, outputs, bias=False)

    def forward(self, nodes, adjacency):
        return self.own(nodes) + self.neighbours(adjacency @ nodes)


class PaperNet(nn.Module):
    def __init__(self, features=32, width=24, topics=4, hops=3):
        super().__init__()
        self.hops = hops
        self.project = nn.Linear(features, width)
        self.conv = GraphConv(width, width)
        self.head = nn.Linear(width, topics)

    def forward(self, nodes, adjacency):
        nodes = F.relu(self.project(nodes))
        for _ in range(self.hops):
            nodes = nodes + F.relu(self.conv(nodes, adjacency))
        return self.head(nodes)


@contextmanager
def profile(model):
    """Calls and multiply-adds per submodule; other modules that run meanwhile are left out."""
    names = {module: name for name, module in model.named_modules() if name}
    calls, macs, depth = Counter(), Counter(), []

    def enter(module, inputs):
        if module in names:
            depth.append(names[module])

    def leave(module, inputs, output):
        if module not in names:
            return
        calls[depth[-1]] += 1
        if isinstance(module, nn.Linear):
            work = output.numel() * module.in_features
            for name in set(depth):
                macs[name] += work
        depth.pop()

    handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
    try:
        yield calls, macs
    finally:
        for handle in handles:
            handle.remove()


def make_graph(papers=300, topics=4, features=32):
    topic = torch.randint(0, topics, (papers,))
    nodes = torch.randn(papers, features)
    nodes[:, :topics] += 1.2 * F.one_hot(topic, topics)
    same = topic[:, None] == topic[None]
    linked = torch.rand(papers, papers) < torch.where(same, 0.04, 0.01)
    adjacency = (linked | linked.T).float()
    return nodes, adjacency / adjacency.sum(1, keepdim=True).clamp(min=1), topic


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    nodes, adjacency, topic = make_graph()
    model = PaperNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    known = torch.arange(len(nodes)) < 100
    for epoch in range(30):
        if epoch == 0:
            with profile(model) as (calls, macs):
                loss = criterion(model(nodes, adjacency)[known], topic[known])
        else:
            loss = criterion(model(nodes, adjacency)[known], topic[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name in ("project", "conv", "conv.own", "conv.neighbours", "head"):
        print(f"{name:<16} {calls[name]} calls {macs[name] / 1e6:.3f} M multiply-adds")
    with torch.no_grad():
        hits = (model(nodes, adjacency).argmax(1) == topic)[~known].float().mean()
    print(f"loss {loss.item():.4f}, accuracy on the other papers {hits:.3f}")


if __name__ == "__main__":
    main()
