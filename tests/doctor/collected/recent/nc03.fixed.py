"""Check that activation checkpointing leaves the gradients of a noisy encoder unchanged.

Hidden features are jittered during training. The jitter is drawn from its own random
stream so that it does not depend on data shuffling.
"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.set_num_threads(1)


class Stage(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.act = nn.SiLU()

    def forward(self, x):
        return x + self.fc2(self.act(self.fc1(x)))


class Encoder(nn.Module):
    def __init__(self, dim=24, depth=4, save_memory=False):
        super().__init__()
        self.save_memory = save_memory
        self.stem = nn.Linear(10, dim)
        self.stages = nn.ModuleList(Stage(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        h = self.stem(x)
        for stage in self.stages:
            if self.save_memory and self.training:
                h = checkpoint(stage, h, use_reentrant=False)
            else:
                h = stage(h)
        return self.head(h)


class FeatureJitter:
    def __init__(self, model, strength, seed):
        self.strength, self.seed = strength, seed
        self.gen = torch.Generator()
        for stage in model.stages:
            stage.act.register_forward_hook(self.apply)

    def restart(self):
        torch.manual_seed(self.seed)

    def apply(self, module, args, out):
        if not module.training:
            return None
        noise = torch.randn(out.shape)
        return out * (1 + self.strength * noise)


def run(save_memory, steps=1):
    torch.manual_seed(0)
    model = Encoder(save_memory=save_memory)
    jitter = FeatureJitter(model, strength=0.5, seed=11)
    x, y = torch.randn(128, 10), torch.randint(0, 3, (128,))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    jitter.restart()
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    return loss.item(), grads


def main():
    loss_a, grad_a = run(save_memory=False)
    loss_b, grad_b = run(save_memory=True)
    print(f"loss        plain {loss_a:.6f}   checkpointed {loss_b:.6f}")
    cos = nn.functional.cosine_similarity(grad_a, grad_b, dim=0).item()
    rel = ((grad_a - grad_b).norm() / grad_a.norm()).item()
    print(f"gradients   cosine {cos:.4f}   relative difference {rel:.4f}")


if __name__ == "__main__":
    main()
