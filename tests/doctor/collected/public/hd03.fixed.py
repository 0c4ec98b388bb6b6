"""Sensor fault classifier: train, fold the batch norms with torch.fx, compare before shipping."""
import torch
from torch import fx, nn
import torch.nn.functional as F
from torch.nn.utils.fusion import fuse_linear_bn_eval


class FaultNet(nn.Module):
    def __init__(self, sensors, classes=3, width=32):
        super().__init__()
        self.fc1 = nn.Linear(sensors, width)
        self.bn1 = nn.BatchNorm1d(width)
        self.fc2 = nn.Linear(width, width)
        self.bn2 = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.fc1(x)))
        x = F.relu(self.bn2(self.fc2(x)))
        return self.head(x)


class Standardize:
    """Sensors come in raw units (Pa, K, rpm); bring them to zero mean and unit variance."""

    def __init__(self, readings):
        self.mean = readings.mean(0)
        self.std = readings.std(0)

    def __call__(self, module, args):
        return ((args[0] - self.mean) / self.std,)


def make_readings(count):
    labels = torch.randint(0, 3, (count,))
    latent = torch.randn(count, 6)
    latent[:, 0] += 1.5 * labels
    latent[:, 1] -= 1.2 * (labels == 1)
    scale = torch.tensor([1e3, 40.0, 12.0, 0.5, 300.0, 5.0])
    offset = torch.tensor([1e5, 290.0, 1500.0, 0.0, 20.0, -3.0])
    return latent * scale + offset, labels


def train(model, readings, labels, epochs=6):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(readings)).split(100):
            loss = F.cross_entropy(model(readings[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


def fold_batch_norms(model):
    graph_module = fx.symbolic_trace(model)
    modules = dict(graph_module.named_modules())
    for node in list(graph_module.graph.nodes):
        if node.op != "call_module" or not isinstance(modules[node.target], nn.BatchNorm1d):
            continue
        source = node.args[0]
        fused = fuse_linear_bn_eval(modules[source.target], modules[node.target])
        setattr(graph_module, source.target, fused)
        node.replace_all_uses_with(source)
        graph_module.graph.erase_node(node)
    graph_module.delete_all_unused_submodules()
    graph_module.recompile()
    return graph_module.eval()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    readings, labels = make_readings(1500)
    test_readings, test_labels = make_readings(500)

    model = FaultNet(readings.shape[1])
    standardize = Standardize(readings)
    model.register_forward_pre_hook(standardize)
    train(model, readings, labels)

    shipped = fold_batch_norms(model)
    shipped.register_forward_pre_hook(standardize)
    with torch.no_grad():
        before = model(test_readings).argmax(1)
        after = shipped(test_readings).argmax(1)
    print(f"accuracy of the trained model: {(before == test_labels).float().mean():.3f}")
    print(f"accuracy of the folded model:  {(after == test_labels).float().mean():.3f}")
    print("predictions identical:", "yes" if torch.equal(before, after) else "no")


if __name__ == "__main__":
    main()
