"""Taps that vanish with their owner: dropping the object is the documented way to stop."""
import gc
import weakref

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 32)
        self.b = nn.Linear(32, 32)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(torch.relu(self.b(torch.relu(self.a(x)))))


class Tap:
    """Mean activation per call. The hook holds a weak reference, so the tap can die."""

    def __init__(self, layer):
        self.means = []
        me = weakref.ref(self)

        def hook(module, args, out):
            tap = me()
            if tap is not None:
                tap.means.append(round(out.detach().mean().item(), 4))

        self.handle = layer.register_forward_hook(hook)
        weakref.finalize(self, self.handle.remove)


def hooks(model):
    return sum(len(m._forward_hooks) for m in model.modules())


def main():
    torch.manual_seed(0)
    model = Net()
    taps = {name: Tap(getattr(model, name)) for name in ("a", "b")}
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 10)
    y = (x[:, 0] > 0).long()
    for step in range(4):
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
        if step == 1:
            history_a = taps.pop("a").means       # the list stays, the tap goes
            gc.collect()
            print("hooks after dropping the first tap:", hooks(model))
    print("a:", len(history_a), "calls", history_a)
    print("b:", len(taps["b"].means), "calls", taps["b"].means)

    handle = taps["b"].handle
    del model, opt
    gc.collect()
    handle.remove()                               # the module is gone, nothing to do
    print("tap without a model still has its data:", len(taps["b"].means))


if __name__ == "__main__":
    main()
