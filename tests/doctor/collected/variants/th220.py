"""Training in functional style: the state is a dict of tensors, the module only defines the computation."""
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


class PatchNet(nn.Module):
    def __init__(self, patch=4, dim=16, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, patch, stride=patch)
        self.mixers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.patch(x).flatten(2).mean(-1)
        for mixer in self.mixers:
            h = h + F.gelu(mixer(h))
        return self.head(h)


@dataclass(frozen=True)
class TrainState:
    params: dict
    optimizer: torch.optim.Optimizer
    step: int = 0

    @classmethod
    def create(cls, module, lr):
        params = {k: v.detach().clone().requires_grad_() for k, v in module.named_parameters()}
        return cls(params, torch.optim.SGD(params.values(), lr=lr))


def freeze_patch_embedding(module):
    """MoCo v3: a fixed random patch projection stabilises the training of vision transformers."""
    return {name: p.register_hook(torch.zeros_like) for name, p in module.patch.named_parameters()}


def train_step(module, state, images, labels):
    logits = functional_call(module, state.params, (images,))
    loss = F.cross_entropy(logits, labels)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    return replace(state, step=state.step + 1), loss.item()


def main():
    torch.manual_seed(0)
    module = PatchNet()
    handles = freeze_patch_embedding(module)
    state = TrainState.create(module, lr=0.5)
    images, labels = torch.randn(32, 1, 16, 16), torch.randint(0, 5, (32,))
    while state.step < 5:
        state, loss = train_step(module, state, images, labels)
        print(f"step {state.step} loss {loss:.4f}")
    moved = (state.params["patch.weight"] - module.patch.weight).norm().item()
    print(f"{len(handles)} hooks; patch embedding moved by {moved:.4f}")


if __name__ == "__main__":
    main()
