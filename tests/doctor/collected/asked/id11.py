from functools import partial

import torch
from torch import fx, nn

torch.set_num_threads(1)
torch.manual_seed(12)


class PixelNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = nn.Linear(16, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.conv2(x))
        return self.head(x.mean(dim=(2, 3)))


def standardize(module, args, mean, std):
    (images,) = args
    return ((images - mean) / std,)


def make_images(n):
    labels = torch.randint(0, 3, (n,))
    images = 120 + 20 * torch.randn(n, 1, 10, 10)
    for i, label in enumerate(labels):
        if label == 1:
            images[i, 0, ::2] += 40
        elif label == 2:
            images[i, 0, :, ::2] += 40
    return images.clamp(0, 255), labels


def train(model, images, labels, epochs=8):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(epochs):
        for start in range(0, len(images), 32):
            batch, target = images[start : start + 32], labels[start : start + 32]
            loss = nn.functional.cross_entropy(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


def count_nodes(graph_module):
    return sum(node.op in ("call_module", "call_function") for node in graph_module.graph.nodes)


@torch.no_grad()
def predict(model, images):
    return model(images).argmax(dim=1)


def main():
    images, labels = make_images(256)
    mean, std = images.mean(), images.std()

    model = PixelNet()
    preprocess = partial(standardize, mean=mean, std=std)
    model.register_forward_pre_hook(preprocess)
    train(model, images, labels)

    deployed = fx.symbolic_trace(model)
    print(f"graph with {count_nodes(deployed)} operations")

    test_images, test_labels = make_images(200)
    eager = predict(model, test_images)
    traced = predict(deployed, test_images)
    print(f"accuracy {(eager == test_labels).float().mean().item():.2f}")
    print(f"same answer after tracing: {(eager == traced).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
