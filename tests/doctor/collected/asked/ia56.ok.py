"""Optimizer step hooks: global clipping before the step, weight averaging after it.

The averaged weights travel with the optimizer's state dict.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(56)
torch.set_num_threads(1)


class Averager:
    """Clips before each step and keeps an exponential average of the weights."""

    def __init__(self, optimizer, max_norm, decay):
        self.params = [p for g in optimizer.param_groups for p in g["params"]]
        self.max_norm = max_norm
        self.decay = decay
        self.clipped = 0
        self.average = [p.detach().clone() for p in self.params]
        optimizer.register_step_pre_hook(self.before_step)
        optimizer.register_step_post_hook(self.after_step)
        optimizer.register_state_dict_post_hook(self.save)
        optimizer.register_load_state_dict_pre_hook(self.load)

    def before_step(self, optimizer, args, kwargs):
        norm = nn.utils.clip_grad_norm_(self.params, self.max_norm)
        self.clipped += int(norm > self.max_norm)

    @torch.no_grad()
    def after_step(self, optimizer, args, kwargs):
        for avg, p in zip(self.average, self.params):
            avg.lerp_(p, 1 - self.decay)

    def save(self, optimizer, state_dict):
        state_dict["average"] = [a.clone() for a in self.average]
        return state_dict

    def load(self, optimizer, state_dict):
        state_dict = dict(state_dict)
        for avg, stored in zip(self.average, state_dict.pop("average")):
            avg.copy_(stored)
        return state_dict


def build():
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, Averager(optimizer, max_norm=0.5, decay=0.9)


def train(model, optimizer, x, y, seed, epochs):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(32):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x[batch]).squeeze(-1), y[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    x = torch.randn(256, 8)
    y = 2 * x[:, 0] + x[:, 1] * x[:, 2]
    model, optimizer, averager = build()
    print(f"loss {train(model, optimizer, x, y, seed=1, epochs=5):.4f}")
    print(f"clipped steps: {averager.clipped} of {5 * 8}")

    checkpoint = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    resumed, resumed_optimizer, resumed_averager = build()
    resumed.load_state_dict(checkpoint["model"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer"])

    train(model, optimizer, x, y, seed=2, epochs=3)
    train(resumed, resumed_optimizer, x, y, seed=2, epochs=3)
    pairs = zip(averager.average, resumed_averager.average)
    print("resumed run has the same averaged weights:", all(torch.equal(a, b) for a, b in pairs))
    pairs = zip(model.parameters(), resumed.parameters())
    print("resumed run has the same weights:", all(torch.equal(a, b) for a, b in pairs))


if __name__ == "__main__":
    main()
