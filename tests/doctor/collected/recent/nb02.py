"""Lottery-ticket pruning with weight rewinding on a small CNN.

1. train the dense network, 2. keep the largest weights of every layer,
3. rewind to the initial weights, 4. train the ticket, 5. report its sparsity.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_num_threads(1)


class SmallCNN(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.relu(self.conv2(x))
        return self.fc(x.amax((2, 3)))


def make_data(n=192):
    g = torch.Generator().manual_seed(3)
    y = torch.randint(0, 3, (n,), generator=g)
    x = 0.4 * torch.randn(n, 1, 12, 12, generator=g)
    for i, c in enumerate(y.tolist()):
        if c == 0:
            x[i, 0, 4:8, :] += 1.0
        elif c == 1:
            x[i, 0, :, 4:8] += 1.0
        else:
            x[i, 0, 3:9, 3:9] += 1.0
    return x, y


def prunable(model):
    return {n: p for n, p in model.named_parameters() if p.dim() > 1}


def train(model, x, y, steps=50):
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        idx = torch.arange(step * 48, step * 48 + 48) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def magnitude_masks(model, keep):
    masks = {}
    for name, p in prunable(model).items():
        k = max(1, int(p.numel() * keep))
        threshold = p.detach().abs().flatten().topk(k).values.min()
        masks[name] = (p.detach().abs() >= threshold).float()
    return masks


def hold_zeros(model, masks):
    """Keep pruned positions at zero: no gradient reaches them."""
    for name, p in prunable(model).items():
        p.register_hook(lambda grad, m=masks[name]: grad * m)


def rewind(model, state, masks):
    model.load_state_dict(copy.deepcopy(state), assign=True)
    with torch.no_grad():
        for name, p in prunable(model).items():
            p.mul_(masks[name])


def sparsity(model):
    weights = torch.cat([p.detach().flatten() for p in prunable(model).values()])
    return (weights == 0).float().mean().item()


def main():
    x, y = make_data()
    model = SmallCNN()
    initial = copy.deepcopy(model.state_dict())
    print(f"dense: final loss {train(model, x, y):.4f}")

    masks = magnitude_masks(model, keep=0.25)
    hold_zeros(model, masks)
    rewind(model, initial, masks)
    print(f"ticket at initialisation: sparsity {sparsity(model):.2f}")
    loss = train(model, x, y)
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"trained ticket: loss {loss:.4f} accuracy {acc:.3f} sparsity {sparsity(model):.2f}")


if __name__ == "__main__":
    main()
