"""Grad-CAM for a small CNN with global average pooling."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class CamNet(nn.Module):
    def __init__(self, width=16, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.conv3(x)
        return self.fc(x.mean((2, 3)))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.activation = None
        self.gradient = None
        self.handles = [
            layer.register_forward_hook(self.save_activation),
            layer.register_full_backward_hook(self.save_gradient),
        ]

    def save_activation(self, module, inputs, output):
        self.activation = output.detach()

    def save_gradient(self, module, grad_input, grad_output):
        # gradient of the class score at the layer
        self.gradient = grad_output[0].detach()

    def __call__(self, x, index):
        self.model.zero_grad()
        self.model(x)[0, index].backward()
        self.weights = self.gradient.mean((2, 3))[0]
        cam = F.relu((self.weights[:, None, None] * self.activation[0]).sum(0))
        return cam / (cam.max() + 1e-8)

    def close(self):
        for h in self.handles:
            h.remove()


def make_data(n):
    x = 0.3 * torch.randn(n, 1, 12, 12)
    y = torch.arange(n) % 3
    for i, c in enumerate(y.tolist()):
        x[i, 0, 4 * c:4 * c + 3, 2:10:c + 1] += 2.0
    return x, y


def main():
    torch.manual_seed(0)
    x, y = make_data(96)
    model = CamNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    cam = GradCAM(model, model.conv3)
    for i in range(3):
        heat = cam(x[i:i + 1], y[i].item())
        row = heat.sum(1).argmax().item()
        # behind a GAP + linear head the weights must follow the row of the classifier
        pair = torch.stack([cam.weights, model.fc.weight[y[i]].detach()])
        print(f"image {i}: hottest row {row:2d}, agreement with class weights {torch.corrcoef(pair)[0, 1]:.3f}")
    cam.close()


if __name__ == "__main__":
    main()
