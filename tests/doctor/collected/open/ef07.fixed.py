"""Guided backpropagation for a bias-free CNN on synthetic images with one object."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1, bias=False), nn.ReLU(),
        )
        self.fc = nn.Linear(12, 2, bias=False)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class GuidedBackprop:
    def __init__(self, model):
        self.model = model.eval()
        self.handles = []
        for module in model.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_full_backward_hook(self.guide))

    @staticmethod
    def guide(module, grad_input, grad_output):
        # only positive evidence may pass a ReLU on the way back
        return (torch.clamp(grad_input[0], min=0.0),)

    def saliency(self, image, target):
        image = image.clone().requires_grad_(True)
        self.model(image)[0, target].backward()
        return image.grad[0, 0]

    def close(self):
        for h in self.handles:
            h.remove()


def sample(n, gen):
    x = torch.zeros(n, 1, 20, 20)
    y = torch.randint(0, 2, (n,), generator=gen)
    for i in range(n):
        patch = torch.rand(5, 5, generator=gen) + 0.5
        if y[i]:
            patch[:, ::2] = 0
        x[i, 0, 2:7, 2:7] = patch
    return x, y


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    x, y = sample(128, gen)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.3f}")
    gb = GuidedBackprop(model)
    for i in range(4):
        sal = gb.saliency(x[i:i + 1], int(y[i])).abs()
        inside = sal[:14, :14].sum()  # object plus the receptive field around it
        print(f"image {i}: saliency in the empty area {100 * (1 - inside / sal.sum()).item():5.1f}%")
    gb.close()


if __name__ == "__main__":
    main()
