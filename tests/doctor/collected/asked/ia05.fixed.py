"""Grad-CAM for a small convolutional classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, classes)
        self.explain = False
        self.activation = None
        self.activation_grad = None

    def save_grad(self, grad):
        self.activation_grad = grad.detach()

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = self.conv2(x)
        x = F.relu(x, inplace=True)
        if self.explain:
            x.register_hook(self.save_grad)
            self.activation = x.detach().clone()
        return self.head(x.mean(dim=(2, 3)))


def make_images(n):
    labels = torch.randint(0, 3, (n,))
    images = torch.randn(n, 1, 16, 16) * 0.3
    for i, label in enumerate(labels.tolist()):
        if label == 0:
            images[i, 0, 3:6, :] += 1.5
        elif label == 1:
            images[i, 0, :, 8:11] += 1.5
        else:
            images[i, 0, 9:14, 2:7] += 1.5
    return images, labels


def fit(model, images, labels):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(12):
        for batch in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


def grad_cam(model, image, target):
    model.eval()
    model.explain = True
    model.zero_grad()
    model(image[None])[0, target].backward()
    model.explain = False
    weights = model.activation_grad.mean(dim=(2, 3), keepdim=True)
    cam = F.relu((weights * model.activation).sum(dim=1))[0]
    return cam / cam.max().clamp(min=1e-8), model.activation_grad[0]


def main():
    images, labels = make_images(240)
    model = ConvNet()
    print(f"final loss {fit(model, images, labels):.3f}")
    zero = total = 0
    for i in range(6):
        cam, grad = grad_cam(model, images[i], labels[i].item())
        row, col = divmod(cam.argmax().item(), cam.size(1))
        print(f"image {i} class {labels[i].item()}: peak at ({row}, {col}), mean {cam.mean():.3f}")
        zero += (grad == 0).sum().item()
        total += grad.numel()
    print(f"feature map positions without gradient: {100 * zero / total:.0f}%")


if __name__ == "__main__":
    main()
