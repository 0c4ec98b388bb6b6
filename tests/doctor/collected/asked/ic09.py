"""Fine-tunes the head of a backbone and draws class activation maps for several layers."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU())
        self.stage3 = nn.Sequential(nn.Conv2d(24, 32, 3, padding=1), nn.ReLU())

    def forward(self, x):
        return self.stage3(self.stage2(self.stage1(x)))


class Classifier(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.backbone = Backbone()
        self.neck = nn.Sequential(nn.Conv2d(32, 32, 1), nn.ReLU())
        self.fc = nn.Linear(32, num_classes)

    def forward(self, x):
        return self.fc(self.neck(self.backbone(x)).mean(dim=(2, 3)))


class LayerCams:
    def __init__(self, model, layer_names):
        self.model = model
        self.activations = {}
        self.gradients = {}
        self.handles = []
        for name in layer_names:
            layer = model.get_submodule(name)
            self.handles.append(layer.register_forward_hook(self.keep_activation(name)))
            self.handles.append(layer.register_full_backward_hook(self.keep_gradient(name)))

    def keep_activation(self, name):
        def hook(module, inputs, output):
            self.activations[name] = output.detach()
        return hook

    def keep_gradient(self, name):
        def hook(module, grad_input, grad_output):
            self.gradients[name] = grad_output[0].detach()
        return hook

    def __call__(self, images, targets):
        self.model.zero_grad()
        scores = self.model(images).gather(1, targets[:, None])
        scores.sum().backward()
        maps = {}
        for name, gradient in self.gradients.items():
            weights = gradient.mean(dim=(2, 3), keepdim=True)
            maps[name] = F.relu((weights * self.activations[name]).sum(dim=1))
        return maps

    def close(self):
        for handle in self.handles:
            handle.remove()


def finetune(model, images, labels, steps=30):
    model.backbone.requires_grad_(False)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def make_images(count=24, size=20):
    labels = torch.arange(count) % 4
    images = 0.3 * torch.rand(count, 3, size, size)
    for i, label in enumerate(labels.tolist()):
        top, left = 2 + 9 * (label // 2), 2 + 9 * (label % 2)
        images[i, label % 3, top:top + 6, left:left + 6] += 1.0
    return images, labels


def main():
    images, labels = make_images()
    model = Classifier()
    print(f"fine-tuning loss {finetune(model, images, labels):.3f}")
    model.eval()
    layers = ["backbone.stage2", "backbone.stage3", "neck"]
    cams = LayerCams(model, layers)
    maps = cams(images[:4].clone(), labels[:4])
    cams.close()
    for name in sorted(maps):
        cam = maps[name]
        print(f"{name}: map {tuple(cam.shape[1:])}, covered {(cam > 0).float().mean().item():.2f}")
    print(f"maps for {len(maps)} of {len(layers)} layers")


if __name__ == "__main__":
    main()
