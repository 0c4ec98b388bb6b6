"""Digit-like classifier that takes raw 0..255 images and normalises them on the way in."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

PIXEL_MEAN = 120.0
PIXEL_STD = 60.0


class DigitNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv = nn.Conv2d(1, 12, 3, stride=2, padding=1)
        self.fc1 = nn.Linear(12 * 5 * 5, 48)
        self.fc2 = nn.Linear(48, classes)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def normalise_input(module, args):
    (images,) = args
    return ((images.float() - PIXEL_MEAN) / PIXEL_STD,)


def build_model():
    model = DigitNet()
    model.register_forward_pre_hook(normalise_input)
    return model


def make_images(count):
    prototypes = torch.randn(10, 1, 10, 10, generator=torch.Generator().manual_seed(9))
    labels = torch.randint(0, 10, (count,))
    pixels = PIXEL_MEAN + 40 * prototypes[labels] + 30 * torch.randn(count, 1, 10, 10)
    return pixels.clamp(0, 255).round(), labels


class Trainer:
    def __init__(self, model, lr=1e-3):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def train_step(self, images, labels):
        logits = self.model.forward(images)
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), (logits.argmax(dim=1) == labels).float().mean().item()

    def fit(self, images, labels, epochs):
        self.model.train()
        for epoch in range(epochs):
            order = torch.randperm(len(images))
            results = [self.train_step(images[i], labels[i]) for i in order.split(50)]
            loss = sum(r[0] for r in results) / len(results)
            acc = sum(r[1] for r in results) / len(results)
            print(f"epoch {epoch}: train loss {loss:.3f} train accuracy {acc:.3f}")

    @torch.no_grad()
    def evaluate(self, images, labels):
        self.model.eval()
        logits = self.model(images)
        loss = F.cross_entropy(logits, labels).item()
        return loss, (logits.argmax(dim=1) == labels).float().mean().item()


def main():
    train_images, train_labels = make_images(1000)
    test_images, test_labels = make_images(400)
    trainer = Trainer(build_model())
    trainer.fit(train_images, train_labels, epochs=6)
    loss, accuracy = trainer.evaluate(test_images, test_labels)
    print(f"test loss {loss:.3f} test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
