"""Do the tasks of a shared encoder fight each other? Cosine between the task gradients, tensor by tensor."""
import torch
from torch import nn

torch.manual_seed(31)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
        self.heads = nn.ModuleDict({"age": nn.Linear(16, 1), "income": nn.Linear(16, 1)})

    def forward(self, x, task):
        return self.heads[task](self.encoder(x)).squeeze(1)


class TaskGradients:
    """Keeps the encoder gradient of every task; `task` says whose backward pass is running."""

    def __init__(self, encoder):
        self.task = None
        self.store = {}
        for name, p in encoder.named_parameters():
            p.register_post_accumulate_grad_hook(self.keep(name))

    def keep(self, name):
        def hook(p):
            self.store[self.task, name] = p.grad
        return hook

    def cosines(self, a, b):
        out = {}
        for (task, name), g in self.store.items():
            if task == a:
                other = self.store[b, name]
                out[name] = nn.functional.cosine_similarity(g.flatten(), other.flatten(), dim=0).item()
        return out


x = torch.randn(256, 10)
targets = {"age": x[:, 0] + x[:, 1], "income": -x[:, 0] + x[:, 2]}
model = Shared()
book = TaskGradients(model.encoder)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def task_loss(task, idx):
    return nn.functional.mse_loss(model(x[idx], task), targets[task][idx])


def compare_tasks(idx):
    for task in targets:
        model.zero_grad(set_to_none=False)
        book.task = task
        task_loss(task, idx).backward()
    return book.cosines("age", "income")


for step in range(20):
    idx = torch.randint(0, 256, (64,))
    if step % 10 == 9:
        cosines = compare_tasks(idx)
        print(f"step {step + 1}")
        for name, c in cosines.items():
            print(f"   {name:10s} cos(age, income) = {c:+.3f}")
    optimizer.zero_grad(set_to_none=False)
    book.task = "joint"
    (task_loss("age", idx) + task_loss("income", idx)).backward()
    optimizer.step()

mean = sum(cosines.values()) / len(cosines)
print(f"mean cosine {mean:+.3f}:", "tasks agree, sharing is fine" if mean > 0.9 else "tasks pull apart")
