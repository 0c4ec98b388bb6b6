"""Vocoder-like model: profile it once, remove the profiling hooks, load the trained weights."""
import time
import warnings
import torch
from torch import nn
from torch.nn.utils import weight_norm

torch.set_num_threads(1)
warnings.filterwarnings("ignore", category=FutureWarning)


def build():
    return nn.Sequential(
        weight_norm(nn.Linear(10, 32)), nn.LeakyReLU(0.1),
        weight_norm(nn.Linear(32, 32)), nn.LeakyReLU(0.1),
        weight_norm(nn.Linear(32, 1)),
    )


def add_timers(model, table):
    for name, m in model.named_children():
        def start(mod, args, name=name):
            table[name] = -time.perf_counter()

        def stop(mod, args, out, name=name):
            table[name] += time.perf_counter()
        m.register_forward_pre_hook(start)
        m.register_forward_hook(stop)


def remove_all_hooks(model):
    for m in model.modules():
        m._forward_hooks.clear()
        m._forward_pre_hooks.clear()


torch.manual_seed(0)
trained = build()
opt = torch.optim.Adam(trained.parameters(), lr=1e-2)
x = torch.randn(256, 10)
y = x[:, :1] * x[:, 1:2]
for _ in range(200):
    loss = (trained(x) - y).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
print(f"loss of trained model      {loss.item():.4f}")

model = build().eval()
times = {}
add_timers(model, times)
with torch.no_grad():
    model(x)
    print("profiled layers:", list(times))
    remove_all_hooks(model)
    print(model.load_state_dict(trained.state_dict()))
    print(f"loss of deployed model     {(model(x) - y).pow(2).mean().item():.4f}")
