"""Random-subspace ensemble of small MLPs, evaluated in one batched call.

Each member sees its own random subset of the input features.  Members are trained one
by one; for the evaluation their weights are stacked and run with vmap.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(11)
torch.set_num_threads(1)

FEATURES = 24
CLASSES = 4
MEMBERS = 7
SUBSET = 10


class MLP(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, width)
        self.fc2 = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


def subspace(net, generator):
    """Let the network see SUBSET of the features only."""
    mask = torch.zeros(FEATURES)
    mask[torch.randperm(FEATURES, generator=generator)[:SUBSET]] = 1.0
    net.register_forward_pre_hook(lambda module, args: (args[0] * mask,))
    return net


def make_data(n, seed):
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0)) * 1.2
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (n,), generator=g)
    return centres[y] + torch.randn(n, FEATURES, generator=g), y


def train(net, x, y, steps=60):
    opt = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = F.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return net


def batched(nets):
    params, buffers = stack_module_state(nets)
    base = copy.deepcopy(nets[0])

    def call(p, b, x):
        return functional_call(base, (p, b), (x,))

    return lambda x: vmap(call, in_dims=(0, 0, None))(params, buffers, x)


def main():
    x, y = make_data(512, seed=1)
    xt, yt = make_data(512, seed=2)
    g = torch.Generator().manual_seed(11)
    nets = [train(subspace(MLP(), g), x, y) for _ in range(MEMBERS)]

    with torch.no_grad():
        solo = [(net(xt).argmax(1) == yt).float().mean().item() for net in nets]
    print("members as trained:  ", " ".join(f"{a:.3f}" for a in solo))

    ensemble = batched(nets)
    with torch.no_grad():
        logits = ensemble(xt)
    members = (logits.argmax(-1) == yt).float().mean(1)
    print("members in the stack:", " ".join(f"{a:.3f}" for a in members.tolist()))

    vote = logits.softmax(-1).mean(0).argmax(-1)
    acc = (vote == yt).float().mean().item()
    print(f"mean member accuracy: trained {sum(solo) / MEMBERS:.3f}, stacked {members.mean().item():.3f}")
    print(f"largest difference for one member {(members - torch.tensor(solo)).abs().max().item():.3f}")
    print(f"ensemble accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
