"""Grad-CAM for a small CNN on images with a bright square in one corner."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class CornerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.conv3 = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8 * 4, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.conv3(x)
        return self.fc(F.adaptive_avg_pool2d(F.relu(x), 2).flatten(1))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.activation = self.gradient = None
        self.handles = [
            layer.register_forward_hook(self.save_activation),
            layer.register_full_backward_hook(self.save_gradient),
        ]

    def save_activation(self, module, inp, out):
        self.activation = out.detach()

    def save_gradient(self, module, grad_in, grad_out):
        # gradient of the score with respect to the feature maps of the layer
        self.gradient = grad_out[0].detach()

    def __call__(self, image, target):
        self.model.zero_grad()
        self.model(image)[0, target].backward()
        weights = self.gradient.mean((2, 3), keepdim=True)
        cam = F.relu((weights * self.activation).sum(1))[0]
        return cam / (cam.max() + 1e-8), weights.flatten()

    def close(self):
        for h in self.handles:
            h.remove()


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    x = 0.2 * torch.randn(n, 1, 8, 8, generator=g)
    for i, c in enumerate(y.tolist()):
        r, col = (c // 2) * 4 + 1, (c % 2) * 4 + 1
        x[i, 0, r:r + 2, col:col + 2] += 2.0
    return x, y


model = CornerNet()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
x, y = make_images(128, 1)
for epoch in range(60):
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"accuracy {(model(x).argmax(1) == y).float().mean().item():.2f}")

cam = GradCAM(model.eval(), model.conv3)
x_test, y_test = make_images(40, 2)
hits = 0
for image, label in zip(x_test, y_test.tolist()):
    heat, weights = cam(image[None], label)
    r, c = divmod(heat.argmax().item(), 8)
    hits += int((r // 4) * 2 + (c // 4) == label)
print("channel weights of the last image:", [round(v, 4) for v in weights.tolist()])
print(f"hottest pixel in the right corner: {hits} of {len(x_test)}")
cam.close()
