"""Grad-CAM with a tensor hook that is installed from the forward hook; works with in-place ReLUs."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width=12, classes=3):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True),
        )
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class GradCAM:
    def __init__(self, model, layer):
        self.model = model
        self.act = self.grad = None
        self.handle = layer.register_forward_hook(self.on_forward)

    def on_forward(self, module, args, out):
        self.act = out
        if out.requires_grad:
            # the tensor lives for one pass only, its hook goes with it
            out.register_hook(self.on_grad)

    def on_grad(self, grad):
        self.grad = grad

    def __call__(self, x, target):
        self.model.zero_grad()
        score = self.model(x)[0, target]
        score.backward()
        weights = self.grad.mean((2, 3), keepdim=True)
        cam = F.relu((weights * self.act).sum(1))[0].detach()
        return cam / cam.max().clamp(min=1e-8)

    def close(self):
        self.handle.remove()
        self.act = self.grad = None


def main():
    torch.manual_seed(0)
    n = 90
    y = torch.arange(n) % 3
    x = 0.2 * torch.randn(n, 1, 12, 12)
    for i, c in enumerate(y.tolist()):
        x[i, 0, 4 * c:4 * c + 3, 4:8] += torch.tensor([[1.5, -1.5, 1.5, -1.5]]) if c else 1.5
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")
    model.eval()
    cam = GradCAM(model, model.features)
    with torch.no_grad():
        print("accuracy:", (model(x).argmax(-1) == y).float().mean().item())  # hook is there, but has no gradient to see
    for i in range(3):
        heat = cam(x[i:i + 1], int(y[i]))
        r, c = divmod(heat.flatten().argmax().item(), heat.shape[1])
        pair = torch.stack([cam.grad.mean((2, 3))[0], model.fc.weight[y[i]].detach()])
        print(f"class {int(y[i])}: hottest pixel ({r}, {c}), agreement with class weights {torch.corrcoef(pair)[0, 1]:.3f}")
    cam.close()


if __name__ == "__main__":
    main()
