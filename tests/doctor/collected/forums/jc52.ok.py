"""Diagonal empirical Fisher and Kronecker factors of a network that applies
one layer several times; statistics are taken in training passes only."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(67)


class IterativeNet(nn.Module):
    """The middle layer is applied `depth` times with the same weights."""

    def __init__(self, in_features=9, width=20, depth=3, classes=3):
        super().__init__()
        self.read = nn.Linear(in_features, width)
        self.cell = nn.Linear(width, width)
        self.write = nn.Linear(width, classes)
        self.depth = depth

    def forward(self, x):
        h = torch.tanh(self.read(x))
        for _ in range(self.depth):
            h = h + 0.5 * torch.tanh(self.cell(h))
        return self.write(h)


class FactorCollector:
    def __init__(self, model):
        self.stats = {}
        self.pending = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.stats[name] = {"A": 0.0, "G": 0.0, "fisher": 0.0, "uses": 0, "samples": 0}
                self.handles.append(module.register_forward_hook(self.watch(name)))

    def watch(self, name):
        def forward_hook(module, inputs, output):
            if not (module.training and output.requires_grad):
                return
            activation = inputs[0].detach()

            def on_grad(grad):
                per_sample = grad.detach() * len(grad)
                stat = self.stats[name]
                stat["A"] = stat["A"] + activation.t() @ activation
                stat["G"] = stat["G"] + per_sample.t() @ per_sample
                stat["uses"] += len(grad)
                outer = torch.einsum("no,ni->noi", per_sample, activation)
                self.pending[name] = self.pending.get(name, 0.0) + outer

            output.register_hook(on_grad)
        return forward_hook

    def finish_step(self):
        for name, grads in self.pending.items():
            self.stats[name]["fisher"] = self.stats[name]["fisher"] + grads.pow(2).sum(dim=0)
            self.stats[name]["samples"] += len(grads)
        self.pending = {}

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_split(n, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 9, generator=generator)
    return x, (x[:, :3] * x[:, 3:6]).argmax(dim=1)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    value = F.cross_entropy(model(x), y).item()
    model.train()
    return value


def main():
    train, test = make_split(240, seed=1), make_split(120, seed=2)
    model = IterativeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    collector = FactorCollector(model)
    for epoch in range(4):
        for rows in torch.randperm(240).split(40):
            optimizer.zero_grad()
            F.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
            collector.finish_step()
            optimizer.step()
        print(f"epoch {epoch + 1}: train {evaluate(model, *train):.4f}, test {evaluate(model, *test):.4f}")
    collector.close()

    for name, stat in collector.stats.items():
        trace_a = (stat["A"].trace() / stat["uses"]).item()
        trace_g = (stat["G"].trace() / stat["uses"]).item()
        fisher = (stat["fisher"].sum() / stat["samples"]).item()
        print(f"{name}: uses {stat['uses']}, samples {stat['samples']}, tr A {trace_a:.3f}, "
              f"tr G {trace_g:.4f}, Fisher trace {fisher:.4f}")


if __name__ == "__main__":
    main()
