"""Monte-Carlo dropout on a trained classifier without touching its eval mode."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, inputs=2, hidden=48, classes=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
        )
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.out(self.net(x))


class MonteCarloDropout:
    """Drops units behind every ReLU while active; BatchNorm keeps its running statistics."""

    def __init__(self, model, rate):
        self.model = model
        self.rate = rate
        self.handles = []

    def _drop(self, module, args, output):
        return F.dropout(output, p=self.rate, training=True)

    def __enter__(self):
        for module in self.model.modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self._drop))
        return self

    def __exit__(self, *exc):
        while self.handles:
            self.handles.pop().remove()

    @torch.no_grad()
    def predict(self, x, passes):
        draws = torch.stack([self.model(x).softmax(dim=1) for _ in range(passes)])
        mean = draws.mean(dim=0)
        total = -(mean * mean.clamp_min(1e-9).log()).sum(dim=1)
        expected = -(draws * draws.clamp_min(1e-9).log()).sum(dim=2).mean(dim=0)
        return mean, total - expected


def make_spirals(count):
    labels = torch.randint(0, 3, (count,))
    radius = torch.rand(count) * 2 + 0.2
    angle = radius * 1.5 + labels * 2.1 + 0.15 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), labels


def train(model, x, y, epochs=15):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(epochs):
        for idx in torch.randperm(len(x)).split(64):
            loss = F.cross_entropy(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    x, y = make_spirals(768)
    model = Classifier()
    print(f"training loss {train(model, x, y):.3f}")
    model.eval()

    test_x, test_y = make_spirals(300)
    with torch.no_grad():
        reference = model(test_x)
    print(f"deterministic accuracy {(reference.argmax(dim=1) == test_y).float().mean():.3f}")

    for rate in (0.1, 0.3):
        with MonteCarloDropout(model, rate) as mc:
            mean, information = mc.predict(test_x, passes=30)
            _, far = mc.predict(test_x.roll(1, dims=1) * 1.5, passes=30)
        correct = mean.argmax(dim=1) == test_y
        print(
            f"rate {rate}: accuracy {correct.float().mean():.3f}, "
            f"mutual information {information.mean():.4f}, shifted inputs {far.mean():.4f}"
        )

    with torch.no_grad():
        unchanged = torch.equal(model(test_x), reference)
    print(f"predictions unchanged afterwards: {unchanged}")


if __name__ == "__main__":
    main()
