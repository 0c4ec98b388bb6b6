"""First-order MAML on sinusoids: meta-gradients are handed to the optimizer by tensor hooks."""
import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(23)

META_STEPS = 200
TASKS_PER_STEP = 4
INNER_STEPS = 3
INNER_LR = 0.02


class SineTask:
    def __init__(self, gen):
        self.gen = gen
        self.amplitude = 0.5 + 2.0 * torch.rand(1, generator=gen).item()
        self.phase = math.pi * torch.rand(1, generator=gen).item()

    def sample(self, n=10):
        x = 10.0 * torch.rand(n, 1, generator=self.gen) - 5.0
        return x, self.amplitude * torch.sin(x + self.phase)


class Regressor(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.fc1 = nn.Linear(1, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.out(F.relu(self.fc2(F.relu(self.fc1(x)))))


class MetaLearner:
    def __init__(self):
        self.net = Regressor()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def adapt(self, task):
        learner = copy.deepcopy(self.net)
        inner = torch.optim.SGD(learner.parameters(), lr=INNER_LR)
        for _ in range(INNER_STEPS):
            x, y = task.sample()
            inner.zero_grad()
            F.mse_loss(learner(x), y).backward()
            inner.step()
        return learner

    def task_gradient(self, task):
        learner = self.adapt(task)
        x, y = task.sample()
        loss = F.mse_loss(learner(x), y)
        grads = torch.autograd.grad(loss, list(learner.parameters()))
        names = [name for name, _ in learner.named_parameters()]
        return dict(zip(names, grads)), loss.item()

    def meta_update(self, task, grad_list):
        """A dummy pass creates .grad on the net; the hooks put the summed task gradients there."""
        meta_grads = {name: sum(g[name] for g in grad_list) / len(grad_list) for name in grad_list[0]}
        handles = []
        for name, param in self.net.named_parameters():
            def replace_grad(grad):
                return meta_grads[name]
            handles.append(param.register_hook(replace_grad))
        x, y = task.sample()
        self.optimizer.zero_grad()
        F.mse_loss(self.net(x), y).backward()
        self.optimizer.step()
        for handle in handles:
            handle.remove()


def main():
    gen = torch.Generator().manual_seed(0)
    meta = MetaLearner()
    history = []
    for step in range(1, META_STEPS + 1):
        tasks = [SineTask(gen) for _ in range(TASKS_PER_STEP)]
        grads, losses = zip(*(meta.task_gradient(task) for task in tasks))
        meta.meta_update(tasks[0], list(grads))
        history.append(sum(losses) / len(losses))
        if step % 50 == 0:
            print(f"meta step {step}  post-adaptation loss {sum(history[-50:]) / 50:.3f}")
    print(f"first ten {sum(history[:10]) / 10:.3f}  last ten {sum(history[-10:]) / 10:.3f}")


if __name__ == "__main__":
    main()
