"""MAML-style inner loop with torch.func; the shared embedding is to stay fixed while a task is learned."""
import torch
from torch import nn
from torch.func import functional_call, grad_and_value

torch.manual_seed(9)


class TaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 16)
        self.adapt = nn.Linear(16, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        h = torch.tanh(self.shared(x))
        return self.out(torch.tanh(self.adapt(h)))


net = TaskNet()

def task(seed):
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(4, 1, generator=g)
    x = torch.randn(20, 4, generator=g)
    return x[:10], (x @ w)[:10], x[10:], (x @ w)[10:]


def loss_fn(params, x, y):
    return nn.functional.mse_loss(functional_call(net, params, (x,)), y)


def adapt(x, y, steps=5, lr=0.1):
    params = dict(net.named_parameters())
    for _ in range(steps):
        grads, _ = grad_and_value(loss_fn)(params, x, y)
        # no inner-loop learning in the shared part
        params = {k: p if k.startswith("shared.") else p - lr * grads[k] for k, p in params.items()}
    return params


moved = {"shared": 0.0, "adapt": 0.0, "out": 0.0}
for seed in range(3):
    xs, ys, xq, yq = task(seed)
    fast = adapt(xs, ys)
    before = loss_fn(dict(net.named_parameters()), xq, yq).item()
    after = loss_fn(fast, xq, yq).item()
    print(f"task {seed}: query loss {before:.4f} -> {after:.4f}")
    for k, p in net.named_parameters():
        part = k.split(".")[0]
        moved[part] = max(moved[part], (fast[k] - p).abs().max().item())
for part, value in moved.items():
    print(f"inner-loop movement of {part:6s} {value:.6f}")
print("shared part fixed:", moved["shared"] == 0.0)
