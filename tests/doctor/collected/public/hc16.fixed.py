"""DP-SGD with per-sample gradients from hooks, on a siamese network that compares two inputs."""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)

MAX_NORM = 1.0
NOISE_MULTIPLIER = 0.3
BATCH = 32


class Siamese(nn.Module):
    def __init__(self, n_in=10, hidden=16):
        super().__init__()
        self.fc1 = nn.Linear(n_in, hidden)
        self.fc2 = nn.Linear(hidden, 8)
        self.score = nn.Linear(8, 1)

    def encode(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))

    def forward(self, left, right):
        return self.score((self.encode(left) - self.encode(right)).pow(2)).squeeze(-1)


class PerSampleGradients:
    """Forward hooks keep the inputs, tensor hooks combine them with the output gradients."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self.watch)

    def watch(self, module, inputs, output):
        if torch.is_grad_enabled():
            output.register_hook(partial(self.compute, module, inputs[0].detach()))

    def compute(self, module, activations, grad_output):
        backprops = grad_output * len(activations)
        self.add(module.weight, torch.einsum("no,ni->noi", backprops, activations))
        self.add(module.bias, backprops)

    @staticmethod
    def add(param, value):
        previous = getattr(param, "grad_sample", None)
        param.grad_sample = value if previous is None else previous + value

    def mean_difference(self):
        return max((p.grad_sample.mean(0) - p.grad).abs().max().item() for p in self.parameters)

    def privatize(self, generator):
        squared = sum(p.grad_sample.flatten(1).pow(2).sum(1) for p in self.parameters)
        factor = (MAX_NORM / (squared.sqrt() + 1e-6)).clamp(max=1.0)
        for p in self.parameters:
            summed = torch.einsum("n,n...->...", factor, p.grad_sample)
            noise = torch.randn(p.shape, generator=generator) * NOISE_MULTIPLIER * MAX_NORM
            p.grad = (summed + noise) / len(factor)
            p.grad_sample = None
        return (factor < 1.0).float().mean().item()


def make_pairs(n=320, n_in=10):
    gen = torch.Generator().manual_seed(4)
    means = torch.randn(4, n_in, generator=gen)
    a = torch.randint(0, 4, (n,), generator=gen)
    b = torch.where(torch.rand(n, generator=gen) < 0.5, a, torch.randint(0, 4, (n,), generator=gen))
    noise = 0.3 * torch.randn(2, n, n_in, generator=gen)
    return means[a] + noise[0], means[b] + noise[1], (a == b).float()


def main():
    left, right, same = make_pairs()
    model = Siamese()
    engine = PerSampleGradients(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    gen = torch.Generator().manual_seed(0)
    worst = 0.0
    for epoch in range(4):
        clipped = []
        for i in torch.randperm(256, generator=gen).split(BATCH):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(left[i], right[i]), same[i]).backward()
            worst = max(worst, engine.mean_difference())
            clipped.append(engine.privatize(gen))
            optimizer.step()
        with torch.no_grad():
            accuracy = ((model(left[256:], right[256:]) > 0) == same[256:].bool()).float().mean().item()
        print(f"epoch {epoch}  clipped {sum(clipped) / len(clipped):.2f}  accuracy {accuracy:.3f}")
    print(f"mean of the per-sample gradients against .grad: largest difference {worst:.6f}")


if __name__ == "__main__":
    main()
