"""Rank convolution channels by their Taylor importance before pruning."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
torch.set_num_threads(1)


class PrunableNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 12, 3, padding=1)
        self.fc = nn.Linear(12, classes)
        self.feature_maps = {}

    def forward(self, x):
        x = F.relu(self.conv1(x))
        self.feature_maps["conv1"] = x
        x = F.max_pool2d(x, 2)
        x = F.relu(self.conv2(x))
        self.feature_maps["conv2"] = x
        return self.fc(x.mean(dim=(2, 3)))


def make_data(n=240, size=12):
    labels = torch.arange(n) % 3
    images = 0.3 * torch.randn(n, 1, size, size)
    images[labels == 0, :, ::2, :] += 1.0
    images[labels == 1, :, :, ::2] += 1.0
    images[labels == 2, :, ::2, ::2] += 1.0
    return images, labels


def train(model, images, labels, epochs=5):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        for batch in torch.randperm(len(images)).split(30):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss after training {loss.item():.4f}")


def taylor_importance(model, images, labels, batch_size=40):
    scores = {}
    for batch in torch.arange(len(images)).split(batch_size):
        model.zero_grad()
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        for name, feature_map in model.feature_maps.items():
            feature_map.retain_grad()
            contribution = torch.zeros(feature_map.shape[1])
            if feature_map.grad is not None:
                contribution = (feature_map * feature_map.grad).sum(dim=(0, 2, 3)).abs()
            scores[name] = scores.get(name, 0) + contribution.detach()
    return scores


def prune(model, scores, keep):
    with torch.no_grad():
        for name, score in scores.items():
            weak = score.argsort()[:len(score) - int(keep * len(score))]
            conv = getattr(model, name)
            conv.weight[weak] = 0
            conv.bias[weak] = 0


def accuracy(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(dim=1) == labels).float().mean().item()


def main():
    images, labels = make_data()
    model = PrunableNet()
    train(model, images, labels)
    print(f"accuracy before pruning {accuracy(model, images, labels):.3f}")

    scores = taylor_importance(model, images, labels)
    for name, score in scores.items():
        print(f"{name}: total importance {score.sum().item():.5f}, strongest channel {score.max().item():.5f}")
    prune(model, scores, keep=0.75)
    print(f"accuracy after pruning {accuracy(model, images, labels):.3f}")


if __name__ == "__main__":
    main()
