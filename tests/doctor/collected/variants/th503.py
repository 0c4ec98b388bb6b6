"""Autoencoder training with a recorder for the latent codes."""
import gc
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class LatentRecorder:
    """Collects latent codes over the run for a scatter plot at the end."""

    codes: dict = field(default_factory=dict)

    def watch(self, model, *names):
        for name in names:
            self.codes[name] = []
            model.get_submodule(name).register_forward_hook(self._make(name))

    def _make(self, name):
        def record(module, args, output):
            self.codes[name].append(output)

        return record

    def scatter(self, name):
        return torch.cat(self.codes[name]).detach()


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def graph_nodes(outputs):
    seen, todo = set(), [o.grad_fn for o in outputs if o.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(parent for parent, _ in node.next_functions)
    return len(seen)


def main():
    torch.manual_seed(0)
    model = AutoEncoder()
    recorder = LatentRecorder()
    recorder.watch(model, "encoder")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(12):
        x = torch.rand(32, 64)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            gc.collect()
            print(f"step {step} loss {loss.item():.4f} graph nodes alive {graph_nodes(recorder.codes['encoder'])}")
    print("scatter", tuple(recorder.scatter("encoder").shape))


if __name__ == "__main__":
    main()
