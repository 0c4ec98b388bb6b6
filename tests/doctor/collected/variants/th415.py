"""GAN on a 1-D mixture with an exponential moving average of the generator."""
import copy

import torch
from torch import nn


class WarmupAdam(torch.optim.Adam):
    """Adam with a linear warm-up built into step()."""

    def __init__(self, params, lr, warmup):
        super().__init__(params, lr=lr, betas=(0.5, 0.99))
        self.base_lr, self.warmup, self.count = lr, warmup, 0

    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            group["lr"] = self.base_lr * min(1.0, self.count / self.warmup)
        return super().step(closure)


class EMA:
    def __init__(self, model, decay=0.9):
        self.shadow = copy.deepcopy(model).requires_grad_(False)
        self.model, self.decay, self.updates = model, decay, 0

    @torch.no_grad()
    def on_step(self, optimizer, args, kwargs):
        self.updates += 1
        for ours, theirs in zip(self.shadow.parameters(), self.model.parameters()):
            ours.lerp_(theirs, 1 - self.decay)


def mlp(inputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


class GAN:
    def __init__(self):
        self.gen, self.disc = mlp(4), mlp(1)
        self.opt_d = torch.optim.Adam(self.disc.parameters(), lr=1e-3)
        self.opt_g = WarmupAdam(self.gen.parameters(), lr=1e-3, warmup=5)
        self.ema = EMA(self.gen)
        self.opt_g.register_step_post_hook(self.ema.on_step)
        self.bce = nn.BCEWithLogitsLoss()

    def step(self, real):
        fake = self.gen(torch.randn(len(real), 4))
        ones, zeros = torch.ones_like(real), torch.zeros_like(real)
        loss_d = self.bce(self.disc(real), ones) + self.bce(self.disc(fake.detach()), zeros)
        self.opt_d.zero_grad()
        loss_d.backward()
        self.opt_d.step()
        loss_g = self.bce(self.disc(fake), ones)
        self.opt_g.zero_grad()
        loss_g.backward()
        self.opt_g.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    gan = GAN()
    for _ in range(20):
        gan.step(torch.randn(32, 1) * 0.3 + 2)
    print("generator steps", gan.opt_g.count, "EMA updates", gan.ema.updates)
