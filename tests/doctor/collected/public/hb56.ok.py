"""Quantisation-aware training by hand: fake-quantised inputs, optimiser steps inside backward, old checkpoints."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize

torch.manual_seed(26)
torch.set_num_threads(1)


def fake_quantise(x, scale, low, high):
    rounded = torch.clamp(torch.round(x / scale), low, high) * scale
    return x + (rounded - x).detach()


class QuantisedWeight(nn.Module):
    def forward(self, weight):
        scale = weight.detach().abs().amax().clamp(min=1e-8) / 127
        return fake_quantise(weight, scale, -127, 127)


class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 2, 1)
        self.head = nn.Linear(16, num_classes)
        self.register_load_state_dict_pre_hook(self.rename_old_keys)

    @staticmethod
    def rename_old_keys(module, state_dict, prefix, *args):
        for old in [k for k in state_dict if k.startswith(prefix + "fc.")]:
            state_dict[old.replace("fc.", "head.", 1)] = state_dict.pop(old)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.head(x.mean((2, 3)))


class InputQuantiser:
    """Forward pre-hook of one layer; tracks the range while training, then keeps it."""

    def __init__(self):
        self.peak = 0.0

    def __call__(self, module, inputs):
        x, = inputs
        if module.training:
            self.peak = max(self.peak, x.detach().abs().max().item())
        return fake_quantise(x, max(self.peak, 1e-8) / 127, -127, 127)


def quantise(model):
    handles = {}
    for name, layer in model.named_children():
        parametrize.register_parametrization(layer, "weight", QuantisedWeight())
        quantiser = InputQuantiser()
        handles[name] = (quantiser, layer.register_forward_pre_hook(quantiser))
    return handles


def step_in_backward(model, lr):
    """One small optimiser per parameter; the gradient is freed as soon as it was used."""
    optimizers = {p: torch.optim.Adam([p], lr=lr) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    return [p.register_post_accumulate_grad_hook(step) for p in optimizers]


def sample(n):
    labels = torch.randint(0, 3, (n,))
    ys, xs = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    patterns = torch.stack([(ys // 2) % 2, (xs // 2) % 2, (ys // 2 + xs // 2) % 2]).float()
    return patterns[labels].unsqueeze(1) + 0.5 * torch.randn(n, 1, 16, 16), labels


def train(model, steps, lr):
    handles = step_in_backward(model, lr)
    for _ in range(steps):
        images, labels = sample(32)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
    for handle in handles:
        handle.remove()
    return loss.item()


@torch.no_grad()
def accuracy(model, images, labels):
    return (model.eval()(images).argmax(1) == labels).float().mean().item()


def main():
    images, labels = sample(300)
    old = Net()
    print(f"float training: loss {train(old, 80, 5e-3):.3f}")
    checkpoint = {k.replace("head.", "fc."): v for k, v in old.state_dict().items()}

    model = Net()
    model.load_state_dict(checkpoint)
    print(f"loaded: accuracy {accuracy(model, images, labels):.3f}, before {accuracy(old, images, labels):.3f}")

    quantisers = quantise(model)
    model.train()
    print(f"quantisation-aware training: loss {train(model, 30, 1e-3):.3f}")
    print(f"quantised: accuracy {accuracy(model, images, labels):.3f}")
    for name, (quantiser, handle) in quantisers.items():
        handle.remove()
        parametrize.remove_parametrizations(getattr(model, name), "weight")
        print(f"{name}: input range {quantiser.peak:.2f}, {model.get_submodule(name).weight.unique().numel()} weight values")
    gradients = sum(p.grad is not None for p in model.parameters())
    print(f"exported: accuracy {accuracy(model, images, labels):.3f}, gradients kept {gradients}")


if __name__ == "__main__":
    main()
