"""Population-based training of a pruned network: several members start from one sparse template."""
import copy
import torch
import torch.nn as nn

torch.manual_seed(17)
KEEP = 0.3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(20, 50)
        self.l2 = nn.Linear(50, 50)
        self.l3 = nn.Linear(50, 1)

    def forward(self, x):
        return self.l3(torch.relu(self.l2(torch.relu(self.l1(x)))))

    def sparse_layers(self):
        return [self.l1, self.l2]


@torch.no_grad()
def prune_by_magnitude(net, keep):
    for layer in net.sparse_layers():
        w = layer.weight
        w[w.abs() < w.abs().flatten().quantile(1 - keep)] = 0


def hold_sparsity(net):
    """Weights that are zero now get no gradient, so they stay zero during training."""
    for layer in net.sparse_layers():
        mask = (layer.weight.detach() != 0).float()
        layer.weight.register_hook(lambda g, mask=mask: g * mask)
    return net


def spawn(parent):
    return hold_sparsity(copy.deepcopy(parent))


def density(net):
    kept = sum((l.weight != 0).sum().item() for l in net.sparse_layers())
    return kept / sum(l.weight.numel() for l in net.sparse_layers())


def fit(net, lr, x, y, steps=40):
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    for _ in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = nn.functional.mse_loss(net(x[idx]).squeeze(1), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        return nn.functional.mse_loss(net(x).squeeze(1), y).item()


x = torch.randn(400, 20)
y = (x[:, 0] * x[:, 1] + x[:, 2]).tanh()

template = Net()
prune_by_magnitude(template, KEEP)
hold_sparsity(template)
print(f"template: density {density(template):.2f}")

population = [(spawn(template), lr) for lr in (0.02, 0.05, 0.1)]
for generation in range(2):
    scored = sorted(((fit(net, lr, x, y), lr, net) for net, lr in population), key=lambda t: t[0])
    for err, lr, net in scored:
        print(f"generation {generation}: lr {lr:.3f}  error {err:.3f}  density {density(net):.2f}")
    # the worst member makes room for a descendant of the best one with a smaller step size
    best = scored[0]
    population = [(net, lr) for _, lr, net in scored[:-1]] + [(spawn(best[2]), best[1] * 0.8)]
