# Fine-tuning with discriminative learning rates: the pretrained layers should
# move ten times more slowly than the new head.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
torch.set_num_threads(1)

BACKBONE_SCALE = 0.1
LR = 2e-3


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)

    def forward(self, x):
        return torch.relu(self.fc2(torch.relu(self.fc1(x))))


class Model(nn.Module):
    def __init__(self, backbone, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def fit(model, optimizer, x, y, epochs):
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
    return total / len(x)


def mean_change(module, before):
    deltas = [(p.detach() - b).abs().flatten() for p, b in zip(module.parameters(), before)]
    return torch.cat(deltas).mean().item()


x = torch.randn(512, 20)
coarse = (x @ torch.randn(20, 6)).argmax(dim=1)

# "pretraining" on the six coarse classes
backbone = Backbone()
pretrained = Model(backbone, 6)
loss = fit(pretrained, torch.optim.Adam(pretrained.parameters(), lr=LR), x, coarse, epochs=6)
print(f"pretraining loss {loss:.3f}")

# new task, new head
fine = (x[:, :5].sum(dim=1) > 0).long() + (x[:, 5] > 0).long()
model = Model(backbone, 3)
for p in model.backbone.parameters():
    p.register_hook(lambda grad: grad * BACKBONE_SCALE)
optimizer = torch.optim.Adam(model.parameters(), lr=LR)

old_backbone = [p.detach().clone() for p in model.backbone.parameters()]
old_head = [p.detach().clone() for p in model.head.parameters()]
loss = fit(model, optimizer, x, fine, epochs=3)
print(f"fine-tuning loss {loss:.3f}")

moved_backbone = mean_change(model.backbone, old_backbone)
moved_head = mean_change(model.head, old_head)
print(f"mean change of backbone weights {moved_backbone:.5f}, of head weights {moved_head:.5f}")
print(f"backbone / head = {moved_backbone / moved_head:.2f}")
