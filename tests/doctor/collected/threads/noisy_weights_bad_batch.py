"""Weight-noise regularisation; malformed batches are skipped."""
import torch
from torch import nn

torch.set_num_threads(1)
SIGMA = 0.5


class WeightNoise:
    def __init__(self, module):
        module.register_forward_pre_hook(self.perturb)
        module.register_forward_hook(self.restore)

    def perturb(self, module, args):
        if module.training:
            self.clean = module.weight.detach().clone()
            module.weight.data.add_(SIGMA * torch.randn_like(module.weight))

    def restore(self, module, args, out):
        if module.training:
            module.weight.data.copy_(self.clean)


def loader(n, bad):
    g = torch.Generator().manual_seed(5)
    for i in range(n):
        x = torch.randn(32, 10, generator=g)
        y = x @ torch.linspace(-1, 1, 10)
        yield (x[:, :9] if i in bad else x), y


def train(bad):
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    WeightNoise(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    skipped = 0
    for x, y in loader(300, bad):
        try:
            pred = model(x).squeeze(1)
        except RuntimeError:
            skipped += 1
            continue
        loss = (pred - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    x = torch.randn(500, 10, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        mse = (model(x).squeeze(1) - x @ torch.linspace(-1, 1, 10)).pow(2).mean()
    print(f"skipped batches {skipped:2d}: test error {mse:.4f}")


train(bad=set())
train(bad={290, 294, 297})
train(bad=set(range(280, 300, 2)))
