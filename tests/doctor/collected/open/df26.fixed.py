"""Linear CKA between the layers of two networks, with self-cleaning taps."""
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList()
        d = 10
        for w in widths:
            self.layers.append(nn.Linear(d, w))
            d = w
        self.out = nn.Linear(d, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.out(x)


class Tap:
    """Copies the output of a layer into `store`; takes its hook along when it dies."""

    def __init__(self, layer, key, store):
        self.key = key
        self.store = store
        handle = layer.register_forward_hook(lambda m, args, out: put(store, key, out))
        self.handle = handle

    def __del__(self):
        self.handle.remove()


def put(store, key, out):
    store[key] = out.detach()


def tap_all(model):
    store, taps = {}, []
    for i, layer in enumerate(model.layers):
        taps.append(Tap(layer, i, store))
    return store, taps


def cka(a, b):
    a = a - a.mean(dim=0)
    b = b - b.mean(dim=0)
    return ((a.T @ b).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm())).item()


def main():
    torch.manual_seed(0)
    wide, narrow = Net([64, 64, 64]).eval(), Net([16, 16, 16]).eval()
    (wide_acts, wide_taps), (narrow_acts, narrow_taps) = tap_all(wide), tap_all(narrow)
    x = torch.randn(200, 10)
    with torch.no_grad():
        wide(x)
        narrow(x)

    rows = [[cka(wide_acts[i], narrow_acts[j]) for j in narrow_acts] for i in wide_acts]
    for i, row in enumerate(rows):
        print(f"wide layer {i}:", " ".join(f"{v:.3f}" for v in row))
    cells = [v for row in rows for v in row]
    print(f"cells in the table: {len(cells)}")
    print(f"most similar pair: {max(cells, default=0.0):.3f}")


if __name__ == "__main__":
    main()
