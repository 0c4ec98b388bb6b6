"""Second-order MAML on sine waves; a hook on the meta-parameters limits the inner gradient and stays differentiable."""
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(112)
INNER_LR, LIMIT = 0.05, 1.0

net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
fired = {"inner": 0, "outer": 0}
phase = ["outer"]


def soft_limit(grad):
    """A smooth bound on the inner gradient; made of ordinary operations, so the outer pass can see through it."""
    fired[phase[0]] += 1
    if phase[0] == "outer":
        return None                     # the meta-gradient itself is left as it is
    return LIMIT * torch.tanh(grad / LIMIT)


for p in net.parameters():
    p.register_hook(soft_limit)


def wave():
    amp, shift = 1 + torch.rand(1), 3 * torch.rand(1)

    def sample(n):
        x = 4 * torch.rand(n, 1) - 2
        return x, amp * torch.sin(x + shift)
    return sample


def adapt(params, x, y):
    loss = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
    phase[0] = "inner"
    grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
    phase[0] = "outer"
    return {k: p - INNER_LR * g for (k, p), g in zip(params.items(), grads)}, grads


optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for it in range(60):
    meta = 0.0
    for _ in range(4):
        sample = wave()
        params = dict(net.named_parameters())
        fast, grads = adapt(params, *sample(20))
        xq, yq = sample(20)
        meta = meta + nn.functional.mse_loss(functional_call(net, fast, (xq,)), yq) / 4
    optimizer.zero_grad()
    meta.backward()
    optimizer.step()
    if it % 20 == 19:
        print(f"iteration {it + 1}: query loss {meta.item():.3f}")

print("inner gradients are differentiable:", all(g.requires_grad for g in grads))
print(f"largest inner gradient entry below the limit: {max(g.abs().max().item() for g in grads) < LIMIT}")
print(f"inner calls {fired['inner']}, outer calls {fired['outer']}")
