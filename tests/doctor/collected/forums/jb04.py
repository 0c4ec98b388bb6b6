"""Which feature maps does the classifier need? Switch off one channel at a time and measure accuracy."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
torch.set_num_threads(1)


class SmallCNN(nn.Module):
    def __init__(self, channels=6, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(self.relu1(self.conv1(x)), 2)
        x = self.relu2(self.conv2(x))
        return self.fc(x.mean(dim=(2, 3)))


def make_data(n):
    """Class 0: horizontal bars, class 1: vertical bars, class 2: blobs."""
    y = torch.randint(0, 3, (n,))
    x = 0.6 * torch.randn(n, 1, 12, 12)
    for i, label in enumerate(y.tolist()):
        k = int(torch.randint(2, 9, (1,)))
        if label == 0:
            x[i, 0, k, :] += 2.0
        elif label == 1:
            x[i, 0, :, k] += 2.0
        else:
            x[i, 0, k:k + 3, k:k + 3] += 2.0
    return x, y


def train(model, x, y, epochs=12):
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        for i in range(0, len(x), 64):
            loss = F.cross_entropy(model(x[i:i + 64]), y[i:i + 64])
            opt.zero_grad()
            loss.backward()
            opt.step()


@torch.no_grad()
def evaluate(model, x, y):
    logits = model(x)
    acc = (logits.argmax(1) == y).float().mean().item()
    return acc, F.cross_entropy(logits, y).item()


class ChannelMask:
    def __init__(self, channels):
        self.keep = torch.ones(1, channels, 1, 1)

    def drop(self, channel):
        self.keep.fill_(1.0)
        self.keep[0, channel] = 0.0

    def __call__(self, module, inputs, output):
        output = output * self.keep


def main():
    model = SmallCNN()
    x_train, y_train = make_data(512)
    x_test, y_test = make_data(256)
    train(model, x_train, y_train)
    model.eval()
    base_acc, base_loss = evaluate(model, x_test, y_test)
    print(f"baseline accuracy {base_acc:.3f} loss {base_loss:.4f}")

    mask = ChannelMask(6)
    handle = model.relu2.register_forward_hook(mask)
    importance = []
    for channel in range(6):
        mask.drop(channel)
        acc, loss = evaluate(model, x_test, y_test)
        importance.append(loss - base_loss)
        print(f"without channel {channel}: accuracy {acc:.3f}  loss increase {loss - base_loss:+.4f}")
    handle.remove()
    print(f"largest absolute change in loss: {max(abs(v) for v in importance):.4f}")


if __name__ == "__main__":
    main()
