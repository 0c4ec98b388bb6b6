"""Message-passing network on random graphs, written like a notebook whose cell is re-run.

The cell attaches input noise to the first layer and trains.  Running it again replaces
the noise from the previous run; the evaluation runs without noise.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(25)
torch.set_num_threads(1)

NOISE = 0.1
handles = {}


class GraphLayer(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.own = nn.Linear(cin, cout)
        self.neighbours = nn.Linear(cin, cout, bias=False)

    def forward(self, h, adjacency):
        return F.relu(self.own(h) + self.neighbours(adjacency @ h))


class GraphNet(nn.Module):
    def __init__(self, features=4, width=16):
        super().__init__()
        self.layer1 = GraphLayer(features, width)
        self.layer2 = GraphLayer(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, h, adjacency):
        h = self.layer1(h, adjacency)
        return self.head(self.layer2(h=h, adjacency=adjacency)).squeeze(-1)


def make_graphs(count, seed, nodes=12):
    """The target of a node is the mean of its neighbours' first feature."""
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(count, nodes, 4, generator=g)
    links = (torch.rand(count, nodes, nodes, generator=g) < 0.3).float()
    links = ((links + links.transpose(1, 2)) > 0).float()
    adjacency = links / links.sum(-1, keepdim=True).clamp_min(1)
    return h, adjacency, (adjacency @ h)[..., 0]


def add_noise(module, args, kwargs):
    h, *rest = args
    if module.training:
        calls.append(1)
        h = h + NOISE * torch.randn_like(h)
    return (h, *rest), kwargs


calls = []


def cell(model, data, steps=60):
    if "noise" in handles:
        handles["noise"].remove()
    handles["noise"] = model.layer1.register_forward_pre_hook(add_noise, with_kwargs=True)
    calls.clear()
    h, adjacency, target = data
    before = h.clone()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for step in range(steps):
        idx = torch.arange(step * 16, step * 16 + 16) % len(h)
        loss = F.mse_loss(model(h[idx], adjacency[idx]), target[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}, noise drawn {len(calls)} times in {steps} steps,"
          f" inputs unchanged: {torch.equal(before, h)}")


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    h, adjacency, target = data
    first, second = model(h, adjacency), model(h, adjacency)
    return F.mse_loss(first, target).item(), (first - second).abs().max().item()


def main():
    model = GraphNet()
    train, test = make_graphs(160, seed=1), make_graphs(64, seed=2)
    cell(model, train)
    cell(model, train)
    error, spread = evaluate(model, test)
    print(f"test error {error:.4f}, two evaluations differ by {spread:.1e}")


if __name__ == "__main__":
    main()
