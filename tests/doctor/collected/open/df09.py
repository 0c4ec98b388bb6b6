"""Fine-tune a magnitude-pruned network with several learning rates."""
import copy

import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 40)
        self.b = nn.Linear(40, 40)
        self.c = nn.Linear(40, 4)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def magnitude_masks(model, amount):
    masks = {}
    for name, p in model.named_parameters():
        if p.dim() < 2:
            continue
        k = int(p.numel() * amount)
        threshold = p.detach().abs().flatten().kthvalue(k).values
        masks[name] = (p.detach().abs() > threshold).float()
    return masks


def apply_masks(model, masks):
    """Zero the pruned weights and keep their gradients at zero from now on."""
    for name, p in model.named_parameters():
        if name in masks:
            with torch.no_grad():
                p.mul_(masks[name])
            p.register_hook(lambda g, m=masks[name]: g * m)


def sparsity(model):
    weights = [p for p in model.parameters() if p.dim() > 1]
    return sum((w == 0).sum().item() for w in weights) / sum(w.numel() for w in weights)


def finetune(model, x, y, lr, steps=20):
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(steps):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    x = torch.randn(128, 10)
    y = x[:, :4].argmax(dim=1)
    net = Net()
    print(f"dense loss {finetune(net, x, y, lr=0.05):.4f}")
    masks = magnitude_masks(net, amount=0.7)
    apply_masks(net, masks)
    print(f"pruned, sparsity {sparsity(net):.2f}")

    for lr in (0.01, 0.05):
        trial = copy.deepcopy(net)          # leave the pruned net untouched for the next trial
        loss = finetune(trial, x, y, lr)
        print(f"lr {lr:<5} loss {loss:.4f}  sparsity after tuning {sparsity(trial):.2f}")


if __name__ == "__main__":
    main()
