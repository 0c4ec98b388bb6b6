"""Grad-CAM region maps for a stream of batches."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
torch.set_num_threads(1)


class ShapesNet(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.layer2 = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).amax(dim=(2, 3)))


class GradCAM:
    def __init__(self, model, target_layer):
        self.model = model
        self.target_layer = target_layer
        self.fmaps = {}
        self.grads = {}
        layer = model.get_submodule(target_layer)
        self.handles = [
            layer.register_forward_hook(self.save_fmaps),
            layer.register_full_backward_hook(self.save_grads),
        ]

    def save_fmaps(self, module, inputs, output):
        self.fmaps[self.target_layer] = output.detach()

    def save_grads(self, module, grad_input, grad_output):
        self.grads[self.target_layer] = grad_output[0].detach()

    def remove_hooks(self):
        for handle in self.handles:
            handle.remove()

    def generate(self):
        weights = self.grads[self.target_layer].mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.fmaps[self.target_layer]).sum(dim=1))
        return cam / cam.amax(dim=(1, 2), keepdim=True).clamp(min=1e-6)

    def explain(self, images):
        logits = self.model(images)
        ids = logits.argmax(dim=1)
        self.model.zero_grad()
        logits.gather(1, ids[:, None]).sum().backward()
        regions = self.generate()
        self.remove_hooks()
        return ids, regions


def make_dataset(count=48, size=16):
    images = 0.1 * torch.randn(count, 1, size, size)
    labels = torch.arange(count) % 4
    for i, label in enumerate(labels.tolist()):
        row, col = torch.randint(1, size - 6, (2,)).tolist()
        if label == 0:
            images[i, 0, row:row + 4, col:col + 4] += 1
        elif label == 1:
            images[i, 0, row, col:col + 5] += 2
        elif label == 2:
            images[i, 0, row:row + 5, col] += 2
        else:
            images[i, 0, range(row, row + 5), range(col, col + 5)] += 2
    return TensorDataset(images, labels)


def fit(model, dataset, epochs=6):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for images, labels in DataLoader(dataset, batch_size=16):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    dataset = make_dataset()
    model = ShapesNet()
    print(f"final loss {fit(model, dataset):.3f}")
    model.eval()
    cam = GradCAM(model, "layer2")
    hits, peaks = 0, set()
    for batch, (images, labels) in enumerate(DataLoader(dataset, batch_size=8)):
        ids, regions = cam.explain(images)
        hits += (ids == labels).sum().item()
        peak = tuple(regions.flatten(1).argmax(dim=1).tolist())
        peaks.add(peak)
        print(f"batch {batch}: predictions {ids.tolist()}  peaks {list(peak)}")
    print(f"{hits} of {len(dataset)} predicted correctly")
    print(f"different region maps over 6 batches: {len(peaks)}")


if __name__ == "__main__":
    main()
