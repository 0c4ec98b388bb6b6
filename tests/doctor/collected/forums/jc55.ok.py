"""DP-SGD with per-sample gradients for a recurrent cell made of linear layers;
activations are kept on a stack because every layer runs once per time step."""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(83)


class LinearRNN(nn.Module):
    def __init__(self, in_features=5, hidden=12, classes=2):
        super().__init__()
        self.hidden = hidden
        self.i2h = nn.Linear(in_features, hidden)
        self.h2h = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        h = x.new_zeros(len(x), self.hidden)
        for t in range(x.shape[1]):
            h = torch.tanh(self.i2h(x[:, t]) + self.h2h(h))
        return self.out(h)


class GradSampler:
    def __init__(self, model):
        self.model = model
        self.stacks = {m: [] for m in model.modules() if isinstance(m, nn.Linear)}
        self.samples = {}
        self.handles = []
        for module in self.stacks:
            self.handles.append(module.register_forward_hook(self.push))

    def push(self, module, inputs, output):
        if output.requires_grad:
            self.stacks[module].append(inputs[0].detach())
            output.register_hook(partial(self.pop, module))

    def pop(self, module, backprop):
        activation = self.stacks[module].pop()
        self.add(module.weight, torch.einsum("no,ni->noi", backprop, activation))
        if module.bias is not None:
            self.add(module.bias, backprop)

    def add(self, parameter, value):
        if parameter in self.samples:
            self.samples[parameter] = self.samples[parameter] + value
        else:
            self.samples[parameter] = value

    def take(self):
        samples, self.samples = self.samples, {}
        return samples

    def close(self):
        for handle in self.handles:
            handle.remove()


def private_step(model, sampler, optimizer, noise, limit=1.0, sigma=0.3):
    samples = sampler.take()
    norms = torch.stack([s.flatten(1).norm(dim=1) for s in samples.values()]).norm(dim=0)
    scale = (limit / norms.clamp_min(1e-12)).clamp(max=1.0)
    for parameter, sample in samples.items():
        summed = torch.einsum("n,n...->...", scale, sample)
        jitter = sigma * limit * torch.randn(summed.shape, generator=noise)
        parameter.grad = (summed + jitter) / len(norms)
    optimizer.step()
    return norms


def make_sequences(n, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, 5, generator=generator)
    y = (x[:, :, 0].sum(dim=1) > 0).long()
    return x, y


def main():
    x, y = make_sequences(240, seed=1)
    test_x, test_y = make_sequences(120, seed=2)
    model = LinearRNN()
    sampler = GradSampler(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    noise = torch.Generator().manual_seed(3)
    for epoch in range(6):
        share = []
        for rows in torch.randperm(len(x)).split(40):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows], reduction="sum")
            loss.backward()
            norms = private_step(model, sampler, optimizer, noise)
            share.append((norms > 1.0).float().mean().item())
        with torch.no_grad():
            accuracy = (model(test_x).argmax(dim=1) == test_y).float().mean().item()
        print(f"epoch {epoch + 1}: clipped {100 * sum(share) / len(share):.1f}%, test accuracy {accuracy:.3f}")
    sampler.close()


if __name__ == "__main__":
    main()
