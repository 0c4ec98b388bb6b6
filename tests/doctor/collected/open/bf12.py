"""Class-incremental learning: the classifier grows with every task, rows of earlier classes are protected."""
import torch
from torch import nn

torch.manual_seed(9)
DIM, PER_TASK = 16, 3


class IncrementalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU())
        self.head = nn.Linear(32, PER_TASK, bias=False)
        self.n_old = 0

    def protect(self):
        """Gradient of the rows of classes learned in earlier tasks is set to zero."""
        def hook(grad):
            grad = grad.clone()
            grad[:self.n_old] = 0
            return grad
        self.head.weight.register_hook(hook)

    def grow(self, n_new):
        old = self.head.weight.detach()
        self.n_old = len(old)
        fresh = 0.05 * torch.randn(n_new, old.shape[1])
        self.head.weight = nn.Parameter(torch.cat([old, fresh]))
        self.head.out_features = len(self.head.weight)

    def forward(self, x):
        return self.head(self.features(x))


centres = 2.0 * torch.randn(9, DIM)


def task_data(task, n=240):
    y = torch.randint(PER_TASK * task, PER_TASK * (task + 1), (n,))
    return centres[y] + 0.5 * torch.randn(n, DIM), y


def train_task(net, x, y, epochs=5):
    opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for _ in range(epochs):
        for i in range(0, len(x), 40):
            loss = nn.functional.cross_entropy(net(x[i:i + 40]), y[i:i + 40])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


net = IncrementalNet()
net.protect()
for task in range(3):
    if task > 0:
        net.grow(PER_TASK)
        net.features.requires_grad_(False)      # features come from the first task
    before = net.head.weight.detach().clone()
    x, y = task_data(task)
    loss = train_task(net, x, y)
    moved = (net.head.weight.detach() - before)[:net.n_old]
    shift = moved.abs().max().item() if len(moved) else 0.0
    print(f"task {task}: loss {loss:.3f}, classes {len(net.head.weight)}, change of the old rows {shift:.4f}")

x0, y0 = task_data(0)
with torch.no_grad():
    scores = net(x0)[:, :PER_TASK]
    fit = nn.functional.cross_entropy(scores, y0).item()
print(f"loss on the first task among its own classes, after all tasks: {fit:.3f}")
