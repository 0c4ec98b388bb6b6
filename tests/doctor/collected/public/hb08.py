"""Soft filter pruning of a segmentation network: how much does masking half the channels cost?"""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
torch.set_num_threads(1)


class Stage(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class FPNSegmenter(nn.Module):
    def __init__(self, num_classes=2, widths=(8, 16, 32), neck=16):
        super().__init__()
        self.stages = nn.ModuleList()
        cin = 3
        for i, width in enumerate(widths):
            self.stages.append(Stage(cin, width, 1 if i == 0 else 2))
            cin = width
        self.lateral = nn.ModuleList(nn.Conv2d(w, neck, 1) for w in widths)
        self.classify = nn.Conv2d(neck, num_classes, 3, padding=1)

    def extract(self, x):
        levels = []
        for stage in self.stages:
            x = stage.forward(x)
            levels.append(x)
        return levels

    def forward(self, x):
        levels = self.extract(x)
        top = self.lateral[-1](levels[-1])
        for level, lateral in zip(levels[-2::-1], list(self.lateral)[-2::-1]):
            top = F.interpolate(top, size=level.shape[-2:], mode="nearest") + lateral(level)
        return self.classify(top)


class SoftPruner:
    """Masks the channels with the smallest filters, without touching the weights."""

    def __init__(self, model, ratio):
        self.handles = []
        for stage in model.stages:
            importance = stage.conv.weight.detach().abs().sum((1, 2, 3))
            keep = torch.ones_like(importance)
            keep[importance.argsort()[:int(ratio * len(importance))]] = 0
            self.handles.append(stage.register_forward_hook(self.masking(keep.view(1, -1, 1, 1))))

    @staticmethod
    def masking(keep):
        def hook(module, inputs, output):
            return output * keep
        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


def sample(n):
    images = 0.3 * torch.randn(n, 3, 24, 24)
    masks = torch.zeros(n, 24, 24, dtype=torch.long)
    for i in range(n):
        y, x = torch.randint(0, 14, (2,)).tolist()
        images[i, :, y:y + 10, x:x + 10] += 0.8
        masks[i, y:y + 10, x:x + 10] = 1
    return images, masks


@torch.no_grad()
def evaluate(model, images, masks):
    predicted = model(images).argmax(1)
    both = ((predicted == 1) & (masks == 1)).sum().item()
    either = ((predicted == 1) | (masks == 1)).sum().item()
    return predicted, both / max(either, 1)


def main():
    model = FPNSegmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(60):
        images, masks = sample(8)
        loss = F.cross_entropy(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()

    images, masks = sample(16)
    before, iou = evaluate(model, images, masks)
    print(f"full model: IoU {iou:.3f}")
    for ratio in (0.25, 0.5, 0.75):
        pruner = SoftPruner(model, ratio)
        after, iou = evaluate(model, images, masks)
        pruner.remove()
        changed = (before != after).sum().item()
        print(f"ratio {ratio:.2f}: IoU {iou:.3f}, {changed} pixels changed")


if __name__ == "__main__":
    main()
