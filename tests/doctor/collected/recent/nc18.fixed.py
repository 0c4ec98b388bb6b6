"""Differentially private logistic classifier: per-example gradients from module hooks.

For every linear layer the inputs and the output gradients are captured; their outer
products are the gradients of the single examples, which are clipped to a common norm,
summed and perturbed with Gaussian noise.
"""
import torch
from torch import nn

torch.set_num_threads(1)
CLIP, NOISE_MULTIPLIER, BATCH, LR = 0.5, 1.0, 64, 0.2


class PerExampleGradients:
    def __init__(self, model):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.inputs, self.samples = {}, {}
        for layer in self.layers:
            layer.register_forward_hook(self.keep_input)
            layer.register_full_backward_hook(self.combine)

    def keep_input(self, layer, args, out):
        if layer.training:
            self.inputs[layer] = args[0].detach()

    def combine(self, layer, grad_input, grad_output):
        delta, a = grad_output[0].detach(), self.inputs.pop(layer)
        self.samples[layer.weight] = torch.einsum("no,ni->noi", delta, a)
        self.samples[layer.bias] = delta

    def norms(self):
        return torch.stack([g.flatten(1).norm(dim=1) for g in self.samples.values()]).norm(dim=0)


class PrivateSGD:
    def __init__(self, model, per_example, gen):
        self.model, self.per_example, self.gen = model, per_example, gen
        self.clipped, self.total = 0, 0

    @torch.no_grad()
    def step(self):
        norms = self.per_example.norms()
        factor = (CLIP / norms).clamp(max=1.0)
        self.clipped += int((factor < 1).sum())
        self.total += len(norms)
        for p, g in self.per_example.samples.items():
            summed = torch.einsum("n,n...->...", factor, g)
            noise = NOISE_MULTIPLIER * CLIP * torch.randn(p.shape, generator=self.gen)
            p -= LR * (summed + noise) / len(norms)
        self.per_example.samples.clear()


def make_data(n=1600):
    g = torch.Generator().manual_seed(17)
    centres = 1.2 * torch.randn(5, 16, generator=g)
    y = torch.randint(0, 5, (n,), generator=g)
    return centres[y] + torch.randn(n, 16, generator=g), y


def main():
    torch.manual_seed(0)
    x, y = make_data()
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 5))
    private = PrivateSGD(model, PerExampleGradients(model), torch.Generator().manual_seed(2))
    for epoch in range(8):
        for idx in torch.randperm(1200).split(BATCH):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx], reduction="sum")
            model.zero_grad()
            loss.backward()
            private.step()
    model.eval()
    with torch.no_grad():
        acc = (model(x[1200:]).argmax(1) == y[1200:]).float().mean().item()
    print(f"test accuracy {acc:.3f}")
    print(f"share of examples that were clipped: {private.clipped / private.total:.3f}")


if __name__ == "__main__":
    main()
