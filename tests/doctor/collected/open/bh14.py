"""A global sentinel hook stops a batch whose activations are not finite; the loop leaves such a batch out."""
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

torch.manual_seed(114)


class NonFinite(RuntimeError):
    pass


class Sentinel:
    """Looks at every module output, samples the scale of the activations every 20th call, changes nothing."""

    def __init__(self, every=20):
        self.every, self.calls, self.alarms = every, 0, 0
        self.scales = []

    def __call__(self, module, args, output):
        self.calls += 1
        if not torch.isfinite(output).all():
            self.alarms += 1
            raise NonFinite(type(module).__name__)
        if self.calls % self.every == 0:
            self.scales.append(output.detach().abs().mean().item())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 24)
        self.act = nn.ReLU()
        self.b = nn.Linear(24, 1)

    def forward(self, x):
        return self.b(self.act(self.a(x)))


x = torch.randn(320, 6)
x[77, 2] = float("inf")                     # one broken row in the raw data
y = x[:, 0] - x[:, 1]
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
sentinel = Sentinel()
handle = register_module_forward_hook(sentinel)

left_out = []
try:
    for epoch in range(4):
        for i in range(0, 320, 40):
            try:
                pred = net(x[i:i + 40]).squeeze(1)
            except NonFinite as where:
                left_out.append((epoch, i // 40, str(where)))
                continue
            loss = nn.functional.mse_loss(pred, y[i:i + 40])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
finally:
    handle.remove()

seen = sentinel.calls
net(torch.randn(3, 6))                      # after the run nothing is watched any more
print(f"left out: {left_out}")
print(f"alarms {sentinel.alarms}, samples of the scale {len(sentinel.scales)}, watcher gone: {seen == sentinel.calls}")
print("weights finite:", all(torch.isfinite(p).all().item() for p in net.parameters()))
