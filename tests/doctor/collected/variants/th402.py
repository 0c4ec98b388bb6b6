"""ALBERT-style encoder: one layer applied several times. Report how large its gradient signal is."""
import torch
from torch import nn


class SharedLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class SharedEncoder(nn.Module):
    def __init__(self, vocab=30, dim=16, depth=6):
        super().__init__()
        self.depth = depth
        self.embed = nn.Embedding(vocab, dim)
        self.layer = SharedLayer(dim)
        self.classifier = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(self.depth):
            x = self.layer(x)
        return self.classifier(x.mean(dim=1))


class GradientReport:
    """Gradient norm that reaches each watched module, by name."""

    def __init__(self, model, names):
        self.norms = {}
        self.handles = {}
        self.names = {}
        for name in names:
            module = model.get_submodule(name)
            self.names[module] = name
            self.handles[name] = module.register_full_backward_hook(self.record)

    def record(self, module, grad_input, grad_output):
        self.norms[self.names[module]] = grad_output[0].norm().item()


def main():
    torch.manual_seed(0)
    model = SharedEncoder()
    report = GradientReport(model, ["layer", "classifier"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(4):
        tokens = torch.randint(30, (16, 10))
        loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 0] > 15).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", {k: round(v, 4) for k, v in report.norms.items()})
    print(f"the layer is applied {model.depth} times, the report has", len(report.norms) - 1, "value for it")


if __name__ == "__main__":
    main()
