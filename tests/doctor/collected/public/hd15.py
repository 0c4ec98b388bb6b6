"""Machine-state classifier with multi-level features, trained in float and then fake-quantised."""
import torch
from torch import nn
import torch.nn.functional as F


class FakeQuantLinear(nn.Linear):
    """Linear layer whose weight is rounded to 8 bit."""

    @classmethod
    def from_float(cls, layer):
        new = cls(layer.in_features, layer.out_features)
        new.load_state_dict(layer.state_dict())
        return new

    def forward(self, x):
        scale = self.weight.detach().abs().max() / 127
        return F.linear(x, torch.round(self.weight / scale) * scale, self.bias)


class Backbone(nn.Module):
    def __init__(self, inputs=24, width=32):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.mid = nn.Linear(width, width)
        self.deep = nn.Linear(width, width)

    def forward(self, x):
        return self.deep(F.relu(self.mid(F.relu(self.stem(x)))))


class MultiLevelNet(nn.Module):
    """The head looks at the outputs of several backbone layers, collected by hooks."""

    levels = ("stem", "mid", "deep")

    def __init__(self, classes=4, width=32):
        super().__init__()
        self.backbone = Backbone(width=width)
        self.head = nn.Linear(len(self.levels) * width, classes)
        self.features = {}
        self.collect_features()

    def collect_features(self):
        for name in self.levels:
            self.backbone.get_submodule(name).register_forward_hook(self._make_hook(name))

    def _make_hook(self, name):
        def hook(module, inputs, output):
            self.features[name] = output

        return hook

    def forward(self, x):
        self.backbone(x)
        return self.head(torch.cat([F.relu(self.features[name]) for name in self.levels], 1))


def quantize(model):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, FakeQuantLinear.from_float(child))
    return model


def make_states(count):
    labels = torch.randint(0, 4, (count,))
    x = torch.randn(count, 24)
    x[:, :4] += 2.2 * F.one_hot(labels, 4)
    x[:, 4] *= 1 + labels
    return x, labels


def train(model, x, y, epochs=4):
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(100):
            loss = F.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model, x, y, batch_size=100):
    hits = 0
    for start in range(0, len(x), batch_size):
        rows = slice(start, start + batch_size)
        hits += (model(x[rows]).argmax(1) == y[rows]).sum().item()
    return hits / len(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = make_states(2000)
    test_x, test_y = make_states(1000)
    model = MultiLevelNet()
    train(model, x, y)
    before = accuracy(model, test_x, test_y)
    quantize(model)
    after = accuracy(model, test_x, test_y)
    print(f"accuracy in float: {before:.3f}, with 8 bit weights: {after:.3f}")
    print("loss of accuracy by quantisation:", "small" if before - after < 0.05 else "large")


if __name__ == "__main__":
    main()
