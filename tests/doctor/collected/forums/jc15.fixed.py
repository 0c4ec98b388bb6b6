"""Fine-tune a classification head on a fixed backbone, then look at Grad-CAM maps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(47)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2))
        self.layer4 = nn.Sequential(nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())

    def forward(self, x):
        return self.layer4(self.stem(x))


class FineTuned(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.backbone = Backbone()
        for p in self.backbone.parameters():
            p.requires_grad = False
        self.fc = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, classes))

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.fc(self.backbone(x).mean(dim=(2, 3)))


class GradCAM:
    def __init__(self, model, target_layer):
        self.model = model
        self.activations = None
        self.gradients = None
        self.forward_handle = target_layer.register_forward_hook(self.keep_activations)
        self.backward_handle = target_layer.register_full_backward_hook(self.keep_gradients)

    def keep_activations(self, module, inputs, output):
        self.activations = output.detach()

    def keep_gradients(self, module, grad_input, grad_output):
        self.gradients = grad_output[0].detach()

    def explain(self, image):
        logits = self.model(image.clone().requires_grad_(True))
        target = logits.argmax(dim=1).item()
        self.model.zero_grad()
        logits[0, target].backward()
        weights = self.gradients.mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.activations).sum(dim=1))[0]
        return target, cam

    def release(self):
        self.forward_handle.remove()
        self.backward_handle.remove()


def make_images(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    images = 0.3 * torch.randn(n, 3, 20, 20, generator=generator)
    images[labels == 1, 0, 4:12, 4:12] += 1.2
    images[labels == 0, 2, 8:16, 8:16] += 1.2
    return images, labels


def train_head(model, images, labels, epochs=12):
    optimizer = torch.optim.Adam(model.fc.parameters(), lr=1e-2)
    model.train()
    for _ in range(epochs):
        for chunk in torch.randperm(len(images)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[chunk]), labels[chunk])
            loss.backward()
            optimizer.step()
    print(f"head trained, loss {loss.item():.3f}")


def main():
    images, labels = make_images(128, seed=1)
    model = FineTuned()
    train_head(model, images, labels)
    model.eval()
    cam = GradCAM(model, model.backbone.layer4)
    test_images, test_labels = make_images(4, seed=2)
    for i in range(len(test_images)):
        target, heatmap = cam.explain(test_images[i:i + 1])
        print(f"image {i}: label {test_labels[i].item()}, predicted {target}, "
              f"peak heat {heatmap.max().item():.5f}")
    cam.release()


if __name__ == "__main__":
    main()
