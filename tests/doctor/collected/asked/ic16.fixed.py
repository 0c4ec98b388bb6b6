"""Input covariances (the A factors of K-FAC) gathered along with training."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(27)
torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self, inputs=10, hidden=24, classes=3):
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class InputFactors:
    """Mean of a a^T over all training inputs a (with a one appended) of every linear layer."""

    def __init__(self, model):
        self.sums = {}
        self.samples = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                size = module.in_features + 1
                self.sums[name] = torch.zeros(size, size)
                self.samples[name] = 0
                self.handles.append(module.register_forward_pre_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs):
            if not module.training:
                return
            a = inputs[0].detach()
            a = torch.cat([a, a.new_ones(len(a), 1)], dim=1)
            self.sums[name] += a.t() @ a
            self.samples[name] += len(a)
        return hook

    def factor(self, name):
        return self.sums[name] / self.samples[name]

    def close(self):
        for handle in self.handles:
            handle.remove()


def make_split(count, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    centers = torch.linspace(-2, 2, 30).view(3, 10)
    labels = torch.randint(0, 3, (count,), generator=generator)
    inputs = centers[labels] + torch.randn(count, 10, generator=generator) + shift
    return TensorDataset(inputs, labels)


def train_epoch(model, loader, optimizer):
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    correct = sum((model(inputs).argmax(1) == labels).sum().item() for inputs, labels in loader)
    return correct / len(loader.dataset)


def main():
    train_set = make_split(320, shift=0.0, seed=1)
    valid_set = make_split(200, shift=1.5, seed=2)
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    factors = InputFactors(model)
    epochs = 3
    for epoch in range(epochs):
        loss = train_epoch(model, DataLoader(train_set, batch_size=32), optimizer)
        accuracy = validate(model, DataLoader(valid_set, batch_size=50))
        print(f"epoch {epoch}: loss {loss:.3f}  accuracy on shifted data {accuracy:.2f}")
    factors.close()

    inputs = train_set.tensors[0]
    second_moment = inputs.pow(2).sum(dim=1).mean().item() + 1
    trace = factors.factor("fc1").trace().item()
    print(f"trace of A(fc1) {trace:.2f}, second moment of the training inputs {second_moment:.2f}")
    print(f"samples in A(fc1): {factors.samples['fc1']}, training samples seen: {epochs * len(train_set)}")


if __name__ == "__main__":
    main()
