"""Continual learning: units that matter for task A are protected during task B."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
torch.set_num_threads(1)

WIDTH = 32


class Tower(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(depth)])
        self.heads = nn.ModuleDict({"a": nn.Linear(WIDTH, 2), "b": nn.Linear(WIDTH, 2)})

    def forward(self, x, task):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.heads[task](x)


class ProtectedSGD(torch.optim.SGD):
    """SGD in which some entries of a parameter can be locked."""

    def protect(self, masks):
        for group in self.param_groups:
            for p in group["params"]:
                if p not in masks:
                    continue
                free = masks[p]

                def lock(param, free=free):
                    param.grad.mul_(free)

                p.register_post_accumulate_grad_hook(lock)


def train(model, optimizer, x, y, task, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, task), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def importance(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x, "a"), y).backward()
    scores = {}
    for layer in model.layers:
        scores[layer.weight] = (layer.weight.grad * layer.weight).abs().detach()
    model.zero_grad()
    return scores


def main():
    x = torch.randn(400, WIDTH)
    y_a = (x[:, :4].sum(1) > 0).long()
    y_b = (x[:, 4:9].sum(1) > 0.5).long()
    model = Tower()

    first = torch.optim.SGD(model.parameters(), lr=0.2)
    print(f"task A loss {train(model, first, x, y_a, 'a', 80):.4f}")

    masks, locked = {}, {}
    for weight, score in importance(model, x, y_a).items():
        keep = score >= score.flatten().kthvalue(int(0.6 * score.numel())).values
        masks[weight] = (~keep).float()
        locked[weight] = keep
    before = {w: w.detach().clone() for w in masks}

    body = [p for layer in model.layers for p in layer.parameters()]
    second = ProtectedSGD(body + list(model.heads["b"].parameters()), lr=0.2)
    second.protect(masks)
    print(f"task B loss {train(model, second, x, y_b, 'b', 80):.4f}")

    for i, layer in enumerate(model.layers):
        w = layer.weight
        moved = ((w.detach() != before[w]) & locked[w]).sum().item()
        print(f"layer {i}: {moved} of {locked[w].sum().item()} protected weights changed")


if __name__ == "__main__":
    main()
