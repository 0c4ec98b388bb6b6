import io

import torch
from torch import nn

torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self, n_features=20, hidden=64, classes=4):
        super().__init__()
        self.fc1 = nn.Linear(n_features, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.out(x)


def pruned_checkpoint(sparsity=0.6):
    """A model whose small weights were set to zero, as another job left it."""
    torch.manual_seed(21)
    model = Classifier()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if param.dim() == 2:
                threshold = param.abs().flatten().quantile(sparsity)
                param.mul_(param.abs() > threshold)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    return buffer


class SparseFinetuner:
    def __init__(self, model, state):
        self.model = model
        self.masks = {name: (t != 0) for name, t in state.items() if t.dim() == 2}
        for name, param in model.named_parameters():
            if name in self.masks:
                param.register_hook(self._mask_gradient(name))
        model.load_state_dict(state, assign=True)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def _mask_gradient(self, name):
        mask = self.masks[name]
        return lambda grad: grad * mask

    def fit(self, x, y, steps=40):
        for _ in range(steps):
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def sparsity(self):
        params = dict(self.model.named_parameters())
        zeros = sum(int((params[name] == 0).sum()) for name in self.masks)
        return zeros / sum(params[name].numel() for name in self.masks)


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 20)
    y = (x[:, :4] + 0.3 * torch.randn(256, 4)).argmax(dim=1)

    state = torch.load(pruned_checkpoint())
    tuner = SparseFinetuner(Classifier(), state)
    print(f"sparsity before {tuner.sparsity():.2f}")
    loss = tuner.fit(x, y)
    print(f"loss {loss:.3f}")
    print(f"sparsity after {tuner.sparsity():.2f}")


if __name__ == "__main__":
    main()
