"""Cost of a recurrent graph network on molecules: multiply-adds counted with forward hooks."""
import torch
from torch import nn
import torch.nn.functional as F


class Propagate(nn.Module):
    """One round of messages; `message` and `update` belong to the whole network."""

    def __init__(self, message, update):
        super().__init__()
        self.message = message
        self.update = update

    def forward(self, nodes, edges):
        source, target = edges
        sent = F.relu(self.message(torch.cat([nodes[source], nodes[target]], 1)))
        received = torch.zeros_like(nodes).index_add(0, target, sent)
        return nodes + torch.tanh(self.update(received))


class MoleculeNet(nn.Module):
    def __init__(self, atoms=10, width=16, rounds=3):
        super().__init__()
        self.embedding = nn.Embedding(atoms, width)
        message = nn.Linear(2 * width, width)
        update = nn.Linear(width, width)
        self.rounds = nn.ModuleList(Propagate(message, update) for _ in range(rounds))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, atoms, edges, graph, graphs):
        nodes = self.embedding(atoms)
        for layer in self.rounds:
            nodes = layer(nodes, edges)
        pooled = torch.zeros(graphs, nodes.shape[1]).index_add(0, graph, nodes)
        return self.readout(pooled).squeeze(-1)


class MacCounter:
    def __init__(self):
        self.total = 0
        self.handles = []

    def attach(self, module):
        for child in module.modules():
            if isinstance(child, nn.Linear):
                self.handles.append(child.register_forward_hook(self._count))

    def _count(self, module, inputs, output):
        self.total += output.numel() * module.in_features

    def detach(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def count_macs(model, *inputs):
    counter = MacCounter()
    counter.attach(model)
    with torch.no_grad():
        model(*inputs)
    counter.detach()
    return counter.total


def make_molecules(graphs=20, size=9):
    atoms = torch.randint(0, 10, (graphs * size,))
    graph = torch.arange(graphs).repeat_interleave(size)
    chain = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
    chain = torch.cat([chain, chain.flip(0)], 1)
    edges = torch.cat([chain + size * i for i in range(graphs)], 1)
    return atoms, edges, graph, graphs


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    atoms, edges, graph, graphs = make_molecules()
    for rounds in (1, 3, 6):
        model = MoleculeNet(rounds=rounds)
        counted = count_macs(model, atoms, edges, graph, graphs)
        width = 16
        per_round = edges.shape[1] * 2 * width * width + len(atoms) * width * width
        by_hand = rounds * per_round + graphs * (width * width + width)
        print(f"{rounds} rounds: {counted / 1e6:.3f} M counted, {by_hand / 1e6:.3f} M by hand, ratio {counted / by_hand:.2f}")


if __name__ == "__main__":
    main()
