"""Guided backpropagation and plain saliency side by side."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU(),
        )
        self.fc = nn.Linear(8, 2, bias=False)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class Guided:
    def __init__(self, model):
        self.model = model
        self.handles = []

    def __enter__(self):
        def hook(module, grad_input, grad_output):
            return tuple(None if g is None else g.clamp(min=0.0) for g in grad_input)
        self.handles = [m.register_full_backward_hook(hook)
                        for m in self.model.modules() if isinstance(m, nn.ReLU)]
        return self

    def __exit__(self, *exc):
        for h in self.handles:
            h.remove()


def saliency(model, image, target):
    image = image.clone().requires_grad_(True)
    # gradient with respect to the image only, the parameters keep their .grad
    return torch.autograd.grad(model(image)[0, target], image)[0][0, 0]


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    x = torch.zeros(64, 1, 16, 16)
    y = torch.randint(0, 2, (64,), generator=gen)
    for i in range(64):
        patch = torch.rand(5, 5, generator=gen) + 0.5
        if y[i]:
            patch[::2] = 0
        x[i, 0, 2:7, 2:7] = patch
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    for i in range(3):
        plain = saliency(model, x[i:i + 1], int(y[i]))
        with Guided(model):
            guided = saliency(model, x[i:i + 1], int(y[i]))
        again = saliency(model, x[i:i + 1], int(y[i]))
        print(f"image {i}: plain {plain.abs().sum():.3f} guided {guided.abs().sum():.3f} "
              f"empty area {guided[11:, 11:].abs().sum():.4f} plain restored {torch.equal(plain, again)}")


if __name__ == "__main__":
    main()
