"""Class activation maps for a small CNN that finds a bright blob."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class BlobNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = self.features(x)
        return self.head(x.amax(dim=(2, 3)))


def make_images(count):
    """Each class is a small texture; its position is random."""
    images = 0.1 * torch.randn(count, 1, 16, 16)
    labels = torch.randint(0, 4, (count,))
    patterns = torch.sign(torch.randn(4, 4, 4, generator=torch.Generator().manual_seed(3)))
    corners = torch.randint(0, 12, (count, 2))
    for i in range(count):
        r, c = corners[i].tolist()
        images[i, 0, r : r + 4, c : c + 4] += patterns[labels[i]]
    return images, labels, corners


def train(model, images, labels, epochs=12):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for xb, yb in zip(images.split(32), labels.split(32)):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


class ClassActivationMap:
    def __init__(self, model, target_layer):
        self.model = model
        self.activations = []
        self.handle = target_layer.register_forward_hook(self._save_activation)

    def _save_activation(self, module, args, output):
        self.activations.append(output.detach())

    @torch.no_grad()
    def __call__(self, image):
        logits = self.model(image.unsqueeze(0))
        predicted = logits.argmax(dim=1).item()
        maps = self.activations[0][0]
        weights = self.model.head.weight[predicted]
        cam = F.relu((weights[:, None, None] * maps).sum(dim=0))
        return cam / (cam.max() + 1e-8), predicted

    def release(self):
        self.handle.remove()


def main():
    images, labels, _ = make_images(256)
    model = BlobNet()
    loss = train(model, images, labels)
    print(f"final training loss {loss:.3f}")

    model.eval()
    test_images, test_labels, corners = make_images(8)
    explain = ClassActivationMap(model, model.features[4])
    peaks = []
    for i in range(len(test_images)):
        cam, predicted = explain(test_images[i])
        row, col = divmod(int(cam.argmax()), cam.shape[1])
        peaks.append((row * 2, col * 2))
        print(
            f"image {i}: class {test_labels[i].item()} predicted {predicted}, "
            f"patch at {tuple(corners[i].tolist())}, map peak at {peaks[-1]}"
        )
    explain.release()
    offsets = torch.tensor(peaks) - corners
    inside = ((offsets >= -1) & (offsets <= 4)).all(dim=1)
    print(f"peaks on the patch: {int(inside.sum())} of {len(peaks)}")


if __name__ == "__main__":
    main()
