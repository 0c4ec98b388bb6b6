"""Fine-tune a sparse checkpoint: zero weights stay zero, the stem stays frozen."""
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)


class SparseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 48), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(48, 48), nn.ReLU())
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


def sparse_checkpoint(density=0.3):
    model = SparseNet()
    state = model.state_dict()
    for name, value in state.items():
        if name.endswith("weight"):
            state[name] = value * (torch.rand_like(value) < density)
    return state


class SparsityKeeper:
    def __init__(self, model):
        self.masks = {}
        self.handles = []
        for name, param in model.named_parameters():
            if not name.endswith("weight"):
                continue
            self.masks[name] = (param.detach() != 0).float()
            self.handles.append(param.register_hook(partial(self.mask_gradient, name)))

    def mask_gradient(self, name, grad):
        return grad * self.masks[name]

    def remove(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def sparsity(model):
    weights = [p for n, p in model.named_parameters() if n.endswith("weight")]
    return sum((w == 0).sum().item() for w in weights) / sum(w.numel() for w in weights)


def main():
    x = torch.randn(300, 16)
    y = (x @ torch.randn(16, 3)).argmax(dim=1)

    model = SparseNet()
    model.load_state_dict(sparse_checkpoint())
    for param in model.stem.parameters():
        param.requires_grad = False
    print(f"sparsity of the checkpoint {sparsity(model):.3f}")

    keeper = SparsityKeeper(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for epoch in range(6):
        total = 0.0
        for batch in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        print(f"epoch {epoch}: loss {total / len(x):.4f}")
    keeper.remove()
    print(f"sparsity after fine-tuning {sparsity(model):.3f}")


if __name__ == "__main__":
    main()
