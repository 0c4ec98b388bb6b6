"""Finds under-used channels of a compiled classifier before pruning it."""
import torch
import torch.nn as nn

torch.manual_seed(0)
torch._dynamo.config.skip_nnmodule_hook_guards = False
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, width=48, classes=5):
        super().__init__()
        self.stem = nn.Linear(20, width)
        self.act1 = nn.ReLU()
        self.mid = nn.Linear(width, width)
        self.act2 = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.act1(self.stem(x))
        x = self.act2(self.mid(x))
        return self.head(x)


class ChannelUsage:
    """Counts how often each channel of an activation layer is positive."""

    def __init__(self, model, layer_names, width=48):
        self.active = {name: torch.zeros(width) for name in layer_names}
        self.rows = {name: torch.zeros(()) for name in layer_names}
        self.handles = []
        for name in layer_names:
            layer = model.get_submodule(name)
            self.handles.append(layer.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, args, output):
            self.active[name].add_((output > 0).sum(dim=0))
            self.rows[name].add_(output.shape[0])
        return hook

    def close(self):
        for handle in self.handles:
            handle.remove()

    def rarely_used(self, name, threshold):
        rate = self.active[name] / self.rows[name].clamp(min=1)
        return torch.nonzero(rate < threshold).flatten().tolist()


def batches(n, seed):
    gen = torch.Generator().manual_seed(seed)
    centers = torch.randn(5, 20, generator=gen) * 1.5
    for _ in range(n):
        y = torch.randint(0, 5, (32,), generator=gen)
        yield centers[y] + torch.randn(32, 20, generator=gen), y


def train(model, steps=60):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in batches(steps, seed=1):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def accuracy(predict, seed=1, n=8):
    hits = total = 0
    for x, y in batches(n, seed):
        hits += (predict(x).argmax(1) == y).sum().item()
        total += len(y)
    return hits / total


def main():
    model = Classifier()
    print(f"train loss {train(model):.3f}")
    model.eval()
    fast = torch.compile(model, backend="eager")
    print(f"accuracy {accuracy(fast):.3f}")

    usage = ChannelUsage(model, ["act1", "act2"])
    accuracy(fast, n=12)
    usage.close()
    for name in ("act1", "act2"):
        idle = usage.rarely_used(name, threshold=0.25)
        print(f"{name}: {usage.rows[name].item():.0f} rows, {len(idle)} channels to prune")
    print(f"accuracy {accuracy(fast):.3f}")


if __name__ == "__main__":
    main()
