"""Save activations in half precision to reduce memory."""
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(0)


def pack(t):
    if t.is_floating_point() and t.dtype == torch.float32:
        return t.dtype, t.half()
    return None, t


def unpack(packed):
    dtype, t = packed
    return t if dtype is None else t.to(dtype)


class PoissonNet(nn.Module):
    """Predicts log counts; the rates reach about 1e5."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 32), nn.Tanh())
        self.head = nn.Linear(32, 2)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():
            self.head.bias.copy_(torch.tensor([2.0, 11.5]))

    def forward(self, x):
        return self.head(self.trunk(x)).exp()


def loss_fn(rate, count):
    return (rate - count * rate.log()).mean(0)


x = torch.randn(64, 3)
counts = torch.stack([torch.full((64,), 9.0), torch.full((64,), 90000.0)], 1)
for save_half in (False, True):
    torch.manual_seed(1)
    model = PoissonNet()
    if save_half:
        with saved_tensors_hooks(pack, unpack):
            loss = loss_fn(model(x), counts)
    else:
        loss = loss_fn(model(x), counts)
    loss.sum().backward()
    print(f"half={save_half!s:5} losses {[round(v, 2) for v in loss.tolist()]}",
          f"grad of head bias {model.head.bias.grad.tolist()}",
          f"nan in weight grad: {int(model.head.weight.grad.isnan().sum())}")
