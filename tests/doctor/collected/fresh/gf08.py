"""Class-incremental learning: a new class row is trained while the rows of the old classes stay fixed."""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(8)
OLD, NEW = 3, 1


class Classifier(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 12), nn.Tanh())
        self.head = nn.Linear(12, n_classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def protect_old_rows(head, n_old):
    """No gradient for the rows of the old classes."""
    def zero_old(grad):
        grad = grad.clone()
        grad[:n_old] = 0
        return grad
    head.weight.register_hook(zero_old)
    head.bias.register_hook(zero_old)


def old_checkpoint():
    """What the previous session left behind: a classifier for the old classes."""
    net = Classifier(OLD)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    x = torch.randn(90, 6)
    y = x[:, :OLD].argmax(1)
    for _ in range(40):
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    return buffer


def grow(state):
    """Append rows for the new classes to the stored head."""
    state["head.weight"] = torch.cat([state["head.weight"], 0.01 * torch.randn(NEW, 12)])
    state["head.bias"] = torch.cat([state["head.bias"], torch.zeros(NEW)])
    return state


checkpoint = old_checkpoint()
model = Classifier(OLD + NEW)
model.backbone.requires_grad_(False)
protect_old_rows(model.head, OLD)
# assign=True: take the loaded tensors over as they are, without another copy
model.load_state_dict(grow(torch.load(checkpoint)), assign=True)
model.backbone.requires_grad_(False)

start = model.head.weight.detach().clone()
opt = torch.optim.SGD(model.head.parameters(), lr=0.2)
x_new = torch.randn(60, 6) + 2.0
y_new = torch.full((60,), OLD)
for epoch in range(10):
    loss = F.cross_entropy(model(x_new), y_new)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss on the new class {loss.item():.4f}")
moved = (model.head.weight.detach() - start).norm(dim=1)
for row, m in enumerate(moved.tolist()):
    print(f"row {row} ({'old' if row < OLD else 'new'}) moved by {m:.4f}")
