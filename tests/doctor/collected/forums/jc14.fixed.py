"""Class-incremental fine-tuning: new classes are added to the head and only
their rows may be trained, the rows of the old classes must stay as they are."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(43)

OLD, NEW, WIDTH = 4, 2, 16


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def make_classes(first, last, n, seed):
    generator = torch.Generator().manual_seed(seed)
    centers = 1.5 * torch.randn(OLD + NEW, 12, generator=torch.Generator().manual_seed(0))
    y = torch.randint(first, last, (n,), generator=generator)
    return centers[y] + torch.randn(n, 12, generator=generator), y


def run(model, optimizer, x, y, epochs):
    for _ in range(epochs):
        for chunk in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[chunk]), y[chunk])
            loss.backward()
            optimizer.step()
    return loss.item()


def grow_head(model):
    old_head = model.head
    model.head = nn.Linear(WIDTH, OLD + NEW)
    with torch.no_grad():
        model.head.weight[:OLD] = old_head.weight
        model.head.bias[:OLD] = old_head.bias


def keep_old_rows(head):
    weight_mask = torch.zeros_like(head.weight)
    weight_mask[OLD:] = 1.0
    bias_mask = torch.zeros_like(head.bias)
    bias_mask[OLD:] = 1.0
    return [
        head.weight.register_hook(lambda grad: grad * weight_mask),
        head.bias.register_hook(lambda grad: grad * bias_mask),
    ]


@torch.no_grad()
def accuracy(model, x, y, classes=None):
    return (model(x)[:, :classes].argmax(dim=1) == y).float().mean().item()


def main():
    old_x, old_y = make_classes(0, OLD, 400, seed=1)
    new_x, new_y = make_classes(OLD, OLD + NEW, 200, seed=2)

    model = Classifier(OLD)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-3)
    loss = run(model, optimizer, old_x, old_y, epochs=10)
    print(f"phase 1: loss {loss:.3f}, accuracy on old classes {accuracy(model, old_x, old_y):.3f}")

    grow_head(model)
    for p in model.backbone.parameters():
        p.requires_grad_(False)
    before = model.head.weight[:OLD].detach().clone()
    handles = keep_old_rows(model.head)
    head_optimizer = torch.optim.SGD(model.head.parameters(), lr=0.02, momentum=0.9)
    loss = run(model, head_optimizer, new_x, new_y, epochs=20)
    for handle in handles:
        handle.remove()

    moved = (model.head.weight[:OLD].detach() - before).norm() / before.norm()
    print(f"phase 2: loss {loss:.3f}, accuracy on new classes {accuracy(model, new_x, new_y):.3f}")
    print(f"accuracy within the old classes {accuracy(model, old_x, old_y, OLD):.3f}")
    print(f"relative change of the old class weights: {100 * moved.item():.3f}%")


if __name__ == "__main__":
    main()
