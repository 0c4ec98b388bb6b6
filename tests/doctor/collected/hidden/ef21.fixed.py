"""Gradient surgery (PCGrad) for two tasks with a shared trunk."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TwoTask(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(width, 1), nn.Linear(width, 1)])

    def forward(self, x):
        z = self.trunk(x)
        return [head(z).squeeze(-1) for head in self.heads]


class GradientStore:
    """Keeps, for the task that is being differentiated, the gradient of every trunk parameter."""

    def __init__(self, trunk):
        self.task = None
        self.grads = {0: {}, 1: {}}
        for name, p in trunk.named_parameters():
            p.register_post_accumulate_grad_hook(self.make(name))

    def make(self, name):
        def hook(param):
            if self.task is not None:
                self.grads[self.task][name] = param.grad.detach().clone()
        return hook

    def flat(self, task):
        return torch.cat([g.flatten() for g in self.grads[task].values()])


def surgery(a, b):
    """Remove from a the part that points against b."""
    dot = torch.dot(a, b)
    return a - dot / b.norm() ** 2 * b if dot < 0 else a


def write_back(trunk, vector):
    offset = 0
    for p in trunk.parameters():
        n = p.numel()
        p.grad = vector[offset:offset + n].view_as(p).clone()
        offset += n


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    targets = [torch.sin(2 * x[:, 0]) + x[:, 1], -torch.sin(2 * x[:, 0]) + 0.3 * x[:, 2]]
    model = TwoTask()
    store = GradientStore(model.trunk)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    conflicts = 0
    for step in range(60):
        losses = [F.mse_loss(o, t) for o, t in zip(model(x), targets)]
        opt.zero_grad()
        for task, loss in enumerate(losses):
            model.trunk.zero_grad(set_to_none=False)
            store.task = task
            loss.backward(retain_graph=task == 0)
        store.task = None
        g0, g1 = store.flat(0), store.flat(1)
        cos = F.cosine_similarity(g0, g1, dim=0).item()
        conflicts += cos < 0
        write_back(model.trunk, surgery(g0, g1) + surgery(g1, g0))
        opt.step()
        if step % 15 == 0:
            print(f"step {step:2d} losses {losses[0].item():.3f} {losses[1].item():.3f} cosine {cos:+.3f}")
    print(f"steps with conflicting gradients: {conflicts} of 60")


if __name__ == "__main__":
    main()
