"""Per-sample gradient norms (for clipping) of a siamese network, from activations and output gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(20)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2)
        self.proj = nn.Linear(4 * 3 * 3, 8)
        self.predict = nn.Linear(8, 8)

    def embed(self, x):
        return self.proj(torch.tanh(self.conv(x)).flatten(1))

    def forward(self, a, b):
        return (self.predict(self.embed(a)) - self.embed(b)).pow(2).sum(1)


class GradSample:
    """grad of sample i for a linear layer is outer(backprop_i, activation_i)."""

    def __init__(self, model):
        self.inputs, self.grads = {}, {}
        for name, m in model.named_modules():
            if isinstance(m, nn.Linear):
                m.register_forward_hook(self.forward_hook(name))
                m.register_full_backward_hook(self.backward_hook(name))

    def forward_hook(self, name):
        def hook(module, args, out):
            self.inputs[name] = args[0].detach()

        return hook

    def backward_hook(self, name):
        def hook(module, grad_input, grad_output):
            g = torch.einsum("ni,nj->nij", grad_output[0], self.inputs[name])
            # the layer serves both branches, their gradients add up
            self.grads[name] = self.grads.get(name, 0) + g

        return hook


def loss_per_pair(model, a, b, same):
    d = model(a, b)
    return torch.where(same, d, F.relu(2.0 - d))


model = Siamese()
sampler = GradSample(model)
a, b = torch.randn(6, 1, 8, 8), torch.randn(6, 1, 8, 8)
same = torch.tensor([True, False] * 3)
loss_per_pair(model, a, b, same).sum().backward()
norms = sampler.grads["proj"].flatten(1).norm(dim=1)
clip = (1.0 / (norms + 1e-6)).clamp(max=1.0)

print("per-sample norms", [round(v, 3) for v in norms.tolist()])
print("clip factors    ", [round(v, 3) for v in clip.tolist()])
summed = sampler.grads["proj"].sum(0)
gap = (summed - model.proj.weight.grad).abs().max().item()
print(f"norm of the sum {summed.norm().item():.3f}, weight.grad {model.proj.weight.grad.norm().item():.3f}, gap {gap:.4f}")
