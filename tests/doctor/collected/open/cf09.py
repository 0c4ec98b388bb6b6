"""Small-batch fine-tuning: batch norm is exchanged for group norm, feature statistics are logged."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)


def conv_bn(c_in, c_out, stride=1):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU())


class Backbone(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = conv_bn(3, 8)
        self.body = nn.Sequential(conv_bn(8, 16, 2), conv_bn(16, 16))
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


class NormMonitor:
    """Running mean of the standard deviation behind every normalisation layer."""

    def __init__(self, model):
        self.count, self.std = {}, {}
        for name, m in model.named_modules():
            if isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                self.count[name], self.std[name] = 0, 0.0
                m.register_forward_hook(self.make(name))

    def make(self, name):
        def hook(module, args, out):
            self.count[name] += 1
            self.std[name] += (out.detach().std().item() - self.std[name]) / self.count[name]

        return hook


def bn_to_gn(module, groups=4):
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            gn = nn.GroupNorm(groups, child.num_features)
            gn.weight.data.copy_(child.weight.data)
            gn.bias.data.copy_(child.bias.data)
            setattr(module, name, gn)
        else:
            bn_to_gn(child, groups)


class Trainer:
    def __init__(self, model):
        self.model = model
        self.monitor = NormMonitor(model)
        self.model(torch.randn(2, 3, 16, 16))  # shape check
        bn_to_gn(self.model)  # batches of two are too small for batch norm
        self.opt = torch.optim.SGD(model.parameters(), lr=0.05)

    def fit(self, steps):
        for _ in range(steps):
            y = torch.randint(0, 4, (2,))
            x = torch.randn(2, 3, 16, 16) * (1 + y.view(-1, 1, 1, 1))
            loss = F.cross_entropy(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


trainer = Trainer(Backbone())
print(f"final loss {trainer.fit(12):.3f}")
print("norm layers:", [type(m).__name__ for m in trainer.model.modules() if "Norm" in type(m).__name__])
for name in trainer.monitor.count:
    print(f"{name:8s} batches {trainer.monitor.count[name]:2d} std {trainer.monitor.std[name]:.3f}")
