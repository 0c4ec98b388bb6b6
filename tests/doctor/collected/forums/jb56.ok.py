"""Structured pruning: rank channels by first-order importance with hooks, mask them, fine-tune, bake in."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(26)
torch.set_num_threads(1)


class ConvNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3, padding=1)
        self.conv2 = nn.Conv2d(12, 16, 3, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(x.mean(dim=(2, 3)))


class Gate(nn.Module):
    """A per-channel factor that is applied to the output of a convolution by a forward hook."""

    def __init__(self, channels):
        super().__init__()
        self.register_buffer("keep", torch.ones(channels))
        self.probe = None

    def hook(self, module, args, output):
        factor = self.keep if self.probe is None else self.keep * self.probe
        return output * factor.view(1, -1, 1, 1)


def taylor_scores(model, gates, x, y):
    """Gradient of the loss with respect to a factor of one in front of each channel."""
    scores = {name: torch.zeros_like(gate.keep) for name, gate in gates.items()}
    for gate in gates.values():
        gate.probe = torch.ones_like(gate.keep, requires_grad=True)
    for xb, yb in zip(x.split(50), y.split(50)):
        loss = F.cross_entropy(model(xb), yb)
        grads = torch.autograd.grad(loss, [gate.probe for gate in gates.values()])
        for name, grad in zip(gates, grads):
            scores[name] += grad.abs()
    for gate in gates.values():
        gate.probe = None
    return scores


def fit(model, x, y, epochs, lr):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            opt.zero_grad()
            loss.backward()
            opt.step()


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def make_data(n):
    y = torch.randint(0, 3, (n,))
    x = 0.7 * torch.randn(n, 1, 10, 10)
    x[y == 1, :, 3:5, :] += 1.0
    x[y == 2, :, :, 3:5] += 1.0
    return x, y


def main():
    model = ConvNet()
    x, y = make_data(400)
    x_test, y_test = make_data(200)
    fit(model, x, y, epochs=8, lr=0.01)
    print(f"dense accuracy {accuracy(model, x_test, y_test):.3f}")

    convs = {"conv1": model.conv1, "conv2": model.conv2}
    gates = {name: Gate(conv.out_channels) for name, conv in convs.items()}
    handles = [convs[name].register_forward_hook(gate.hook) for name, gate in gates.items()]

    for name, score in taylor_scores(model, gates, x, y).items():
        drop = score.argsort()[: len(score) // 2]
        gates[name].keep[drop] = 0.0
        print(f"{name}: channels kept {int(gates[name].keep.sum())}/{len(score)}")
    print(f"accuracy after masking {accuracy(model, x_test, y_test):.3f}")
    fit(model, x, y, epochs=4, lr=0.005)
    masked = accuracy(model, x_test, y_test)
    with torch.no_grad():
        before = model(x_test)

    for handle in handles:
        handle.remove()
    with torch.no_grad():
        for name, conv in convs.items():
            conv.weight.mul_(gates[name].keep.view(-1, 1, 1, 1))
            conv.bias.mul_(gates[name].keep)
        after = model(x_test)
    print(f"accuracy after fine-tuning {masked:.3f}")
    print("baked model agrees:", torch.allclose(before, after, atol=1e-5))


if __name__ == "__main__":
    main()
