"""Find the module that first produces a non-finite activation, with one global forward hook."""
import torch
import torch.nn as nn
from torch.nn.modules.module import register_module_forward_hook

torch.manual_seed(24)
torch.set_num_threads(1)


class SafeLog(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Branch(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.log = SafeLog()
        self.rnn = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x):
        h = self.log(torch.sigmoid(self.fc(x)))
        out, _ = self.rnn(h)
        return out


class Model(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.left = Branch(dim)
        self.right = Branch(dim)
        self.head = nn.Linear(2 * dim, 1)

    def forward(self, x):
        x = self.norm(x)
        return self.head(torch.cat([self.left(x), self.right(x)], dim=-1)[:, -1])


def tensors_in(value):
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


class FiniteCheck:
    """The hook is global, so modules of other models are told apart by their absence from the name table."""

    def __init__(self, model):
        self.names = {module: name or "model" for name, module in model.named_modules()}

    def __enter__(self):
        self.calls = {}
        self.broken = []
        self.handle = register_module_forward_hook(self.hook)
        return self

    def __exit__(self, *exc):
        self.handle.remove()

    def hook(self, module, inputs, output):
        name = self.names.get(module)
        if name is None:
            return
        self.calls[name] = self.calls.get(name, 0) + 1
        if not all(torch.isfinite(t).all() for t in tensors_in(output)):
            self.broken.append(name)


def main():
    model, other = Model().eval(), nn.Linear(8, 8)
    x = torch.randn(4, 5, 8)
    with torch.no_grad(), FiniteCheck(model) as check:
        model(other(x))
    print("healthy model, broken modules:", check.broken)
    print("modules seen:", len(check.calls), "of", len(check.names))
    print("calls per module at most", max(check.calls.values()))

    with torch.no_grad():
        model.right.fc.bias[3] = -1e5
    with torch.no_grad(), FiniteCheck(model) as check:
        model(x)
    print("damaged model, first broken module:", check.broken[0])
    print("all broken modules:", ", ".join(check.broken))

    seen = sum(check.calls.values())
    with torch.no_grad():
        model(x)
    print("calls counted after leaving the context:", sum(check.calls.values()) - seen)


if __name__ == "__main__":
    main()
