"""Quantisation-aware training of a small MLP with 4-bit weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

BITS = 4


class MLP(nn.Module):
    def __init__(self, inputs=24, hidden=48, classes=6):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def quantize(weight, bits=BITS):
    levels = 2 ** (bits - 1) - 1
    scale = weight.abs().max() / levels
    return (weight / scale).round().clamp(-levels, levels) * scale


def quantize_weight(module, args):
    module.weight.data = quantize(module.weight.data)


def enable_qat(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(quantize_weight)
    return model


def make_data(count):
    generator = torch.Generator().manual_seed(10)
    centers = torch.randn(6, 2, 24, generator=generator)
    labels = torch.randint(0, 6, (count,))
    which = torch.randint(0, 2, (count,))
    return centers[labels, which] + 0.8 * torch.randn(count, 24), labels


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(dim=1) == y).float().mean().item()


def train(model, x, y, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        total = 0.0
        order = torch.randperm(len(x))
        for idx in order.split(64):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(idx)
        print(f"  epoch {epoch}: loss {total / len(x):.3f}")


def main():
    x, y = make_data(1200)
    test_x, test_y = make_data(400)

    print("full precision")
    torch.manual_seed(1)
    baseline = MLP()
    train(baseline, x, y, epochs=5, lr=1e-3)
    print(f"  test accuracy {accuracy(baseline, test_x, test_y):.3f}")

    print(f"{BITS}-bit weights")
    torch.manual_seed(1)
    model = enable_qat(MLP())
    train(model, x, y, epochs=5, lr=1e-3)
    print(f"  quantised test accuracy {accuracy(model, test_x, test_y):.3f}")


if __name__ == "__main__":
    main()
