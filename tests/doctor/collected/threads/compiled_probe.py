"""Compare activations of a compiled model before and after adding a probe."""
import torch
from torch import nn

torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.up = nn.Linear(d, 4 * d)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(MLP(), MLP(), MLP())
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layers(x))


def knock_out(module, args, output):
    calls.append(tuple(output.shape))
    return torch.zeros_like(output)


calls = []
eager = Model().eval()
model = torch.compile(eager, backend="eager")
x = torch.randn(4, 16)
with torch.no_grad():
    warm = model(x)
    handle = eager.layers[1].act.register_forward_hook(knock_out)
    ablated = model(x)
    reference = eager(x)
    n_calls = len(calls)
    handle.remove()

print("logits without hook ", [round(v, 3) for v in warm[0].tolist()])
print("logits with hook    ", [round(v, 3) for v in ablated[0].tolist()])
print("same, not compiled  ", [round(v, 3) for v in reference[0].tolist()])
print(f"effect of the ablation: compiled {(ablated - warm).norm():.4f}, not compiled {(reference - warm).norm():.4f}")
print("hook was called", n_calls, "time(s)")
