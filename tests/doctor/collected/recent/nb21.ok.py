"""Grad-CAM over three layers of a small CNN.

In every forward pass the hook keeps the layer's output and registers a gradient hook on
that output.  Gradients arrive from the last layer to the first.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.act(self.conv1(x))
        x = self.act(self.conv2(x))
        x = self.act(self.conv3(x))
        return self.head(x.mean((2, 3)))


class GradCAM:
    def __init__(self, model, names):
        self.model = model
        self.maps, self.grads = [], []
        self.handles = [model.get_submodule(n).register_forward_hook(self.keep) for n in names]

    def keep(self, module, args, output):
        self.maps.append(output.detach().clone())
        output.register_hook(self.keep_gradient)

    def keep_gradient(self, grad):
        self.grads.insert(0, grad.detach())

    def __call__(self, x, target):
        self.maps.clear()
        self.grads.clear()
        self.model.zero_grad(set_to_none=True)
        self.model(x)[:, target].sum().backward()
        cams = []
        for maps, grads in zip(self.maps, self.grads):
            weights = grads.mean((2, 3), keepdim=True)
            cams.append(F.relu((weights * maps).sum(1)))
        return cams

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_data(n, seed):
    """A 6x6 textured patch (rows, columns or flat) somewhere in the image."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.2 * torch.randn(n, 1, 16, 16, generator=g)
    where = torch.zeros(n, 16, 16)
    step = torch.tensor([1.0, -1.0]).repeat(3)
    textures = [step.view(6, 1).expand(6, 6), step.view(1, 6).expand(6, 6), torch.ones(6, 6)]
    for i, c in enumerate(y.tolist()):
        r, q = torch.randint(1, 9, (2,), generator=g).tolist()
        x[i, 0, r:r + 6, q:q + 6] += 1.5 * textures[c]
        where[i, r:r + 6, q:q + 6] = 1.0
    return x, y, where


def main():
    x, y, where = make_data(512, seed=1)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(100):
        idx = torch.arange(step * 64, step * 64 + 64) % len(x)
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"training loss {loss.item():.4f}")

    cam = GradCAM(net, ["conv1", "conv2", "conv3"])
    images, boxes = x[y == 2][:16], where[y == 2][:16]
    for repeat in range(2):
        maps = cam(images, target=2)
        for layer, m in enumerate(maps, 1):
            inside = (m * boxes).sum() / m.sum().clamp_min(1e-8)
            print(f"pass {repeat} conv{layer}: {inside.item():.3f} of the map on the object")
    cam.close()


if __name__ == "__main__":
    main()
