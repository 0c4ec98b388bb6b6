"""First-order MAML on sine regression; meta-gradients are fed to the optimizer through hooks."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(8)
torch.set_num_threads(1)


class SineNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.net(x)


def sample_task():
    amplitude = 0.5 + 2 * torch.rand(1)
    phase = 3.14 * torch.rand(1)

    def draw(n):
        x = 10 * torch.rand(n, 1) - 5
        return x, amplitude * torch.sin(x + phase)

    return draw


class MetaLearner:
    def __init__(self, model, inner_lr=0.02, inner_steps=3, meta_lr=2e-3):
        self.model = model
        self.inner_lr = inner_lr
        self.inner_steps = inner_steps
        self.optimizer = torch.optim.Adam(model.parameters(), lr=meta_lr)

    def loss(self, weights, x, y):
        return F.mse_loss(functional_call(self.model, weights, (x,)), y)

    def adapt(self, draw):
        weights = {n: p.detach().clone().requires_grad_() for n, p in self.model.named_parameters()}
        for _ in range(self.inner_steps):
            grads = torch.autograd.grad(self.loss(weights, *draw(10)), list(weights.values()))
            weights = {n: (w - self.inner_lr * g).detach().requires_grad_()
                       for (n, w), g in zip(weights.items(), grads)}
        return weights

    def task_gradient(self, draw):
        weights = self.adapt(draw)
        query_loss = self.loss(weights, *draw(20))
        grads = torch.autograd.grad(query_loss, list(weights.values()))
        return query_loss.item(), dict(zip(weights, grads))

    def meta_step(self, tasks):
        losses, total = [], {}
        for draw in tasks:
            loss, grads = self.task_gradient(draw)
            losses.append(loss)
            for name, grad in grads.items():
                total[name] = total.get(name, 0) + grad / len(tasks)
        self.apply_gradients(total, tasks[0])
        return sum(losses) / len(losses)

    def apply_gradients(self, gradients, draw):
        hooks = []
        for name, param in self.model.named_parameters():
            hooks.append(param.register_hook(lambda grad, name=name: gradients[name]))
        x, y = draw(4)
        self.optimizer.zero_grad()
        F.mse_loss(self.model(x), y).backward()
        self.optimizer.step()
        for hook in hooks:
            hook.remove()


def main():
    learner = MetaLearner(SineNet())
    recent = []
    for iteration in range(1, 31):
        recent.append(learner.meta_step([sample_task() for _ in range(4)]))
        if iteration % 10 == 0:
            print(f"iteration {iteration:3d}: query loss {sum(recent) / len(recent):.3f}")
            recent.clear()


if __name__ == "__main__":
    main()
