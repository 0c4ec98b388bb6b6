"""Grad-CAM explainer used on a whole data set; reports where the maps peak."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)


class Net(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).mean(dim=(2, 3)))


class GradCAM:
    def __init__(self, model, target_layer):
        self.model = model
        self.fmaps = None
        self.grads = None
        self.handlers = [target_layer.register_forward_hook(self.save_fmaps)]

    def save_fmaps(self, module, inputs, output):
        self.fmaps = output.detach()
        if output.requires_grad:
            output.register_hook(self.save_grads)

    def save_grads(self, grad):
        self.grads = grad.detach()

    def forward(self, image):
        self.image_shape = image.shape[2:]
        self.logits = self.model(image)
        probs = F.softmax(self.logits, dim=1)
        return probs.sort(dim=1, descending=True)

    def backward(self, ids):
        self.model.zero_grad()
        one_hot = torch.zeros_like(self.logits).scatter_(1, ids, 1.0)
        self.logits.backward(gradient=one_hot)

    def generate(self):
        weights = F.adaptive_avg_pool2d(self.grads, 1)
        cam = F.relu((weights * self.fmaps).sum(dim=1, keepdim=True))
        cam = F.interpolate(cam, self.image_shape, mode="bilinear", align_corners=False)
        return cam / cam.amax(dim=(2, 3), keepdim=True).clamp_min(1e-8)

    def remove_hook(self):
        for handle in self.handlers:
            handle.remove()


class GradCAMExplainer:
    def __init__(self, model, target_layer):
        self.grad_cam = GradCAM(model, target_layer)

    def __call__(self, image):
        probs, ids = self.grad_cam.forward(image)
        self.grad_cam.backward(ids[:, [0]])
        region = self.grad_cam.generate()
        return ids[0, 0].item(), region[0, 0]

    def close(self):
        self.grad_cam.remove_hook()


def make_patches(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    corners = torch.randint(1, 10, (n, 2), generator=generator).tolist()
    images = 0.15 * torch.randn(n, 1, 16, 16, generator=generator)
    for i, (row, col) in enumerate(corners):
        images[i, 0, row:row + 5, col:col + 5] += 1.0 if labels[i] == 1 else -1.0
    return images, labels


def main():
    images, labels = make_patches(160, seed=1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"training loss {loss.item():.4f}")

    model.eval()
    explainer = GradCAMExplainer(model, model.layer2)
    test_images, test_labels = make_patches(8, seed=2)
    peaks = []
    for i in range(len(test_images)):
        predicted, region = explainer(test_images[i:i + 1])
        row, col = divmod(region.argmax().item(), region.shape[1])
        peaks.append((row, col))
        print(f"image {i}: label {test_labels[i].item()}, predicted {predicted}, peak at ({row}, {col})")
    explainer.close()
    print(f"distinct peak positions: {len(set(peaks))}")


if __name__ == "__main__":
    main()
