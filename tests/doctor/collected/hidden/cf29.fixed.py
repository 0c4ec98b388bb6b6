"""Bayesian-style weight noise: remember the sampled kernel of every forward pass for replay."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize

torch.manual_seed(28)


class GaussianWeight(nn.Module):
    """w = mean + sigma * eps, a new eps for each use of the weight."""

    def __init__(self, sigma=0.1):
        super().__init__()
        self.log_sigma = nn.Parameter(torch.tensor(sigma).log())

    def forward(self, mean):
        return mean + self.log_sigma.exp() * torch.randn_like(mean)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


class Replay:
    """Input, kernel and output of each convolution, to replay a single draw later."""

    def __init__(self, model):
        self.records = {}
        for name, m in model.named_modules():
            if isinstance(m, nn.Conv2d):
                m.register_forward_hook(self.recorder(name))

    def recorder(self, name):
        def hook(module, args, out):
            self.records[name] = (args[0].detach(), module.weight.detach().clone(), out.detach())

        return hook

    def check(self, model, name):
        x, w, out = self.records[name]
        again = F.conv2d(x, w, model.get_submodule(name).bias, padding=1)
        return (again - out).abs().max().item()


model = Net()
for layer in (model.conv1, model.conv2):
    parametrize.register_parametrization(layer, "weight", GaussianWeight())
replay = Replay(model)

x = torch.randn(4, 1, 10, 10)
draws = []
with torch.no_grad():
    for _ in range(5):
        with parametrize.cached():
            draws.append(model(x))
        kernel = replay.records["conv1"][1]
        print(f"kernel norm {kernel.norm().item():.4f} replay error conv1 {replay.check(model, 'conv1'):.6f} "
              f"conv2 {replay.check(model, 'conv2'):.6f}")
print(f"predictive std {torch.stack(draws).std(0).mean().item():.4f}")
