"""Per-sample gradient norms of a weight-shared matching network (same layers, two inputs)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
torch.set_num_threads(1)


class Tower(nn.Module):
    def __init__(self, inputs=14, dim=20):
        super().__init__()
        self.fc1 = nn.Linear(inputs, dim)
        self.fc2 = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class PerSampleNorms:
    """Squared gradient norm of each sample, the two uses of a layer added up beforehand."""

    def __init__(self, model):
        self.model = model
        self.samples = {}
        self.handles = []

    def start(self):
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Linear):
                self.handles.append(module.register_forward_hook(self.make_forward_hook(name)))

    def stop(self):
        while self.handles:
            self.handles.pop().remove()

    def make_forward_hook(self, name):
        def forward_hook(module, inputs, output):
            if not output.requires_grad:
                return
            activation = inputs[0].detach()

            def gradient_hook(grad):
                sample = torch.einsum("no,ni->noi", grad * len(grad), activation)
                self.samples[name] = self.samples.get(name, 0) + sample

            output.register_hook(gradient_hook)
        return forward_hook

    def take(self):
        squares = sum(sample.flatten(1).pow(2).sum(dim=1) for sample in self.samples.values())
        means = {name: sample.mean(dim=0) for name, sample in self.samples.items()}
        self.samples = {}
        return squares.sqrt(), means


def make_pairs(count, generator):
    left = torch.randn(count, 14, generator=generator)
    right = torch.randn(count, 14, generator=generator)
    match = torch.rand(count, generator=generator) < 0.5
    right[match] = left[match] + 0.3 * torch.randn(int(match.sum()), 14, generator=generator)
    return left, right, match.float()


def main():
    generator = torch.Generator().manual_seed(3)
    model = Tower()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    meter = PerSampleNorms(model)
    meter.start()
    for step in range(30):
        left, right, match = make_pairs(40, generator)
        optimizer.zero_grad()
        similarity = F.cosine_similarity(model(left), model(right))
        loss = F.binary_cross_entropy_with_logits(5 * similarity, match)
        loss.backward()
        norms, means = meter.take()
        optimizer.step()
        if step % 10 == 9:
            worst = norms.argmax().item()
            print(f"step {step + 1}: loss {loss.item():.3f}  median norm {norms.median().item():.3f}  "
                  f"largest {norms[worst].item():.3f} (pair {worst})")
    meter.stop()
    gap = (means["fc1"] - model.fc1.weight.grad).abs().max().item()
    print(f"mean of the per-sample gradients equals the batch gradient: {gap < 1e-5}")

    left, right, match = make_pairs(200, generator)
    with torch.no_grad():
        similarity = F.cosine_similarity(model(left), model(right))
    print(f"pairs told apart {((similarity > 0.5) == match.bool()).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
