"""Half-precision storage of saved activations and gradient-ready timestamps per parameter."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, 2, 1)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


class HalfStorage(torch.autograd.graph.saved_tensors_hooks):
    """Wraps the forward pass: what autograd saves is packed there, the backward pass unpacks it."""

    def __init__(self):
        self.packed, self.bytes = 0, 0

        def pack(t):
            if t.dtype is torch.float32 and not isinstance(t, nn.Parameter) and t.dim() == 4:
                self.packed += 1
                self.bytes += t.numel() * 2
                return t.half()
            return t

        def unpack(t):
            return t.float() if t.dtype is torch.float16 else t

        super().__init__(pack, unpack)


model = Net()
ready, keep = [], []
for name, p in model.named_parameters():
    # the node that adds into p.grad; it lives only as long as somebody holds it
    node = p.view_as(p).grad_fn.next_functions[0][0]
    node.register_hook(lambda *_, name=name: ready.append(name))
    keep.append(node)

x, y = torch.randn(8, 1, 12, 12), torch.randint(0, 3, (8,))
F.cross_entropy(model(x), y).backward()
exact = {n: p.grad.clone() for n, p in model.named_parameters()}
order = list(ready)
ready.clear()
model.zero_grad()

store = HalfStorage()
with store:
    loss = F.cross_entropy(model(x), y)
loss.backward()

error = max((p.grad - exact[n]).abs().max().item() for n, p in model.named_parameters())
print("gradient order", order)
print("same order again", ready == order, "nodes kept", len(keep))
print("tensors packed", store.packed, "bytes", store.bytes)
print(f"gradient error from half storage below 1e-3: {error < 1e-3}, above zero: {error > 0}")
assert order[0].startswith("fc") and len(order) == 6
