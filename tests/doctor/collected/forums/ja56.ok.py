"""Optimizer hooks: gradient noise before each step, a moving average of the weights after it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(56)
torch.set_num_threads(1)


class SpiralNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def forward(self, x):
        return self.net(x)


class GradientNoise:
    """Annealed Gaussian noise, added to the gradients right before the update."""

    def __init__(self, optimizer, scale=0.01, seed=0):
        self.scale = scale
        self.step = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.handle = optimizer.register_step_pre_hook(self.perturb)

    def perturb(self, optimizer, args, kwargs):
        std = self.scale / (1 + self.step) ** 0.55
        for group in optimizer.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    param.grad.add_(torch.randn(param.shape, generator=self.generator), alpha=std)
        self.step += 1


class WeightAverage:
    def __init__(self, model, optimizer, decay=0.95):
        self.decay = decay
        self.source = list(model.parameters())
        self.shadow = [p.detach().clone() for p in self.source]
        self.handle = optimizer.register_step_post_hook(self.follow)

    def follow(self, optimizer, args, kwargs):
        with torch.no_grad():
            for average, param in zip(self.shadow, self.source):
                average.lerp_(param, 1 - self.decay)

    def copy_to(self, model):
        with torch.no_grad():
            for param, average in zip(model.parameters(), self.shadow):
                param.copy_(average)


def make_spirals(n=300):
    labels = torch.arange(n) % 2
    radius = torch.linspace(0.2, 2.0, n)
    angle = 3.0 * radius + 3.14159 * labels
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return points + 0.05 * torch.randn(n, 2), labels


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(dim=1) == y).float().mean().item()


def main():
    x, y = make_spirals()
    model = SpiralNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    noise = GradientNoise(optimizer)
    average = WeightAverage(model, optimizer)

    for epoch in range(40):
        for batch in torch.randperm(len(x)).split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch == 29:
            noise.handle.remove()
    average.handle.remove()

    smooth = SpiralNet()
    average.copy_to(smooth)
    print(f"noisy steps: {noise.step}")
    print(f"accuracy of the last weights {accuracy(model, x, y):.3f}")
    print(f"accuracy of the averaged weights {accuracy(smooth, x, y):.3f}")


if __name__ == "__main__":
    main()
