"""Per-sample gradient norms for a siamese verification network (to find the
training pairs with the largest influence on the parameters)."""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)


class Siamese(nn.Module):
    def __init__(self, in_features=16, hidden=24, embedding=8):
        super().__init__()
        self.fc1 = nn.Linear(in_features, hidden)
        self.fc2 = nn.Linear(hidden, embedding)

    def embed(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))

    def forward(self, left, right):
        return (self.embed(left) - self.embed(right)).pow(2).sum(dim=1)


class PerSampleGradients:
    def __init__(self, model):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.handles = []
        for layer in self.layers:
            self.handles.append(layer.register_forward_hook(self.capture))
        self.reset()

    def reset(self):
        for layer in self.layers:
            layer.sample_input = []
            layer.weight.grad_sample = 0.0
            layer.bias.grad_sample = 0.0

    def capture(self, module, inputs, output):
        module.sample_input.append(inputs[0].detach())
        output.register_hook(partial(self.capture_backprop, module))

    def capture_backprop(self, module, backprop):
        activation = module.sample_input.pop()
        module.weight.grad_sample = module.weight.grad_sample + torch.einsum("no,ni->noi", backprop, activation)
        module.bias.grad_sample = module.bias.grad_sample + backprop

    def norms(self):
        squared = 0.0
        for layer in self.layers:
            for p in (layer.weight, layer.bias):
                squared = squared + p.grad_sample.flatten(1).pow(2).sum(dim=1)
        return squared.sqrt()

    def close(self):
        for handle in self.handles:
            handle.remove()


def contrastive_loss(distance, same, margin=2.0):
    return (same * distance + (1 - same) * F.relu(margin - distance)).sum()


def make_pairs(n=96):
    generator = torch.Generator().manual_seed(6)
    centers = torch.randn(6, 16, generator=generator)
    a = torch.randint(0, 6, (n,), generator=generator)
    same = torch.randint(0, 2, (n,), generator=generator)
    b = torch.where(same.bool(), a, (a + 1 + torch.randint(0, 5, (n,), generator=generator)) % 6)
    noise = 0.4 * torch.randn(2, n, 16, generator=generator)
    return centers[a] + noise[0], centers[b] + noise[1], same.float()


def main():
    left, right, same = make_pairs()
    model = Siamese()
    sampler = PerSampleGradients(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    for epoch in range(6):
        optimizer.zero_grad()
        sampler.reset()
        loss = contrastive_loss(model(left, right), same)
        loss.backward()
        norms = sampler.norms()
        size = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        gap = max((p.grad_sample.sum(dim=0) - p.grad).norm() for p in model.parameters()) / size
        optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item() / len(same):.4f}, largest norm {norms.max().item():.3f}")
    sampler.close()
    print("most influential pairs:", norms.topk(5).indices.tolist())
    print("per-sample gradients add up to the batch gradient:", "yes" if gap < 1e-3 else "no")


if __name__ == "__main__":
    main()
