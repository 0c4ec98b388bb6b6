"""Log gradient norms of the task heads' features in a multi-task model."""
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

torch.manual_seed(0)
TASKS = ["seg", "depth", "normals"]
SCALE = {"seg": 1.0, "depth": 10.0, "normals": 100.0}


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 16)
        self.heads = nn.ModuleDict({t: nn.Linear(16, 1) for t in TASKS})

    def forward(self, x):
        h = torch.relu(self.trunk(x))
        feats = {t: h * 1.0 for t in TASKS}
        return feats, {t: self.heads[t](feats[t]) for t in TASKS}


log = {t: [] for t in TASKS}


def watch(feats):
    tensors = [feats[t] for t in TASKS]

    def hook(grads):
        norms = [g.norm().item() for g in grads if g is not None]
        for task, n in zip(TASKS, norms):
            log[task].append(n)
    return register_multi_grad_hook(tensors, hook, mode="all")


model = MultiTask()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for step in range(12):
    x = torch.randn(32, 6)
    feats, preds = model(x)
    handle = watch(feats)
    labelled = TASKS if step % 4 == 0 else TASKS[1:]
    loss = sum(SCALE[t] * preds[t].mean() for t in labelled)
    opt.zero_grad()
    loss.backward()
    opt.step()
    handle.remove()

for t in TASKS:
    print(f"{t:8s} n={len(log[t]):2d} norms:", " ".join(f"{v:.2f}" for v in log[t]))
print("batches with labels: seg 3, depth 12, normals 12; loss weights:", SCALE)
