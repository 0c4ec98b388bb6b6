"""Gradient x activation at several layers, with the completeness check for a bias-free ReLU net."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(6)
torch.set_num_threads(1)


class BiasFreeNet(nn.Module):
    def __init__(self, width=12, num_classes=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.ReLU())
        self.fc = nn.Linear(width, num_classes, bias=False)

    def forward(self, x):
        x = self.last(self.deep(self.mid(self.stem(x))))
        return self.fc(x.mean(dim=(2, 3)))


class ActivationsAndGradients:
    def __init__(self, model, target_layers):
        self.model = model
        self.activations = []
        self.gradients = []
        self.handles = [layer.register_forward_hook(self.save) for layer in target_layers]

    def save(self, module, inputs, output):
        self.activations.append(output.detach())
        output.register_hook(self.save_gradient)

    def save_gradient(self, grad):
        self.gradients.append(grad.detach())

    def __call__(self, images):
        self.activations = []
        self.gradients = []
        return self.model(images)

    def release(self):
        for handle in self.handles:
            handle.remove()


class LayerAttribution:
    def __init__(self, model, target_layers):
        self.model = model
        self.collector = ActivationsAndGradients(model, target_layers)

    def __call__(self, images, targets):
        logits = self.collector(images).gather(1, targets[:, None]).squeeze(1)
        self.model.zero_grad()
        logits.sum().backward()
        pairs = zip(self.collector.activations, self.collector.gradients)
        maps = [(activation * gradient).sum(dim=1) for activation, gradient in pairs]
        return logits.detach(), maps


def make_data(count=60, size=12):
    labels = torch.arange(count) % 3
    images = 0.3 * torch.randn(count, 1, size, size)
    for i, label in enumerate(labels.tolist()):
        images[i, 0, 4 * label:4 * label + 4] += 1.0 + label
    return images, labels


def fit(model, images, labels, steps=40):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    images, labels = make_data()
    model = BiasFreeNet()
    print(f"loss {fit(model, images, labels):.3f}")
    model.eval()
    names = ["stem", "mid", "deep", "last"]
    attribution = LayerAttribution(model, [model.get_submodule(name) for name in names])
    logits, maps = attribution(images[:9], labels[:9])
    attribution.collector.release()
    worst = 0.0
    for name, layer_map in zip(names, maps):
        total = layer_map.sum(dim=(1, 2))
        gap = ((total - logits).abs().mean() / logits.abs().mean()).item()
        worst = max(worst, gap)
        print(f"{name}: mean attribution {total.mean().item():+.3f}  (mean logit {logits.mean().item():+.3f})")
    print(f"largest relative completeness gap: {worst:.3f}")


if __name__ == "__main__":
    main()
