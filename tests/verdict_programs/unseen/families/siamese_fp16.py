"""Contrastive Siamese network (InfoNCE) in float16 with a GradScaler and SGD with momentum."""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
fault = json.loads(os.environ.get("FAULT", "{}"))
kind, step0, spot = fault.get("kind", ""), fault.get("step", 0), fault.get("layer", "")
torch.manual_seed(fault.get("seed", 0))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain = 1.0

    def forward(self, x):
        h = F.silu(self.a(self.norm(x)))
        if self.gain != 1.0:
            h = h.half() * self.gain * self.gain  # larger than 65504
        return x + self.b(h)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(20, 40)
        self.trunk = nn.Sequential(*[Residual(40) for _ in range(4)])
        self.embed = nn.Linear(40, 16)

    def forward(self, view):
        return F.normalize(self.embed(self.trunk(self.stem(view))).float(), dim=-1)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = Tower()

    def forward(self, first, second):
        return self.tower(first) @ self.tower(second).T / 0.15


def views(n, mix):
    identity = torch.randn(n, 6)
    other = torch.tanh(identity.roll(1, 1)) @ mix
    return identity @ mix + 0.2 * torch.randn(n, 20), other + 0.2 * torch.randn(n, 20)


def train(total=150):
    mix = torch.randn(6, 20) / 2
    model = Pair()
    if kind == "not_in_opt":
        held = [p for n, p in model.named_parameters() if not n.startswith(spot + ".")]
    else:
        held = model.parameters()
    opt = torch.optim.SGD(held, lr=0.05, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(total):
        if step == step0:
            if kind == "fp16_overflow":
                model.get_submodule(spot).gain = 3000.0
            if kind == "lr_jump":
                opt.param_groups[0]["lr"] = 4.0
            if kind == "w_scale":
                model.get_parameter(spot).data.mul_(-25.0)
        a, b = views(32, mix)
        target = torch.arange(32)
        if kind == "batch_labels" and step == step0:
            target = target.flip(0)
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(a, b)
        loss = F.cross_entropy(logits, target)
        if kind == "fp16_loss" and step >= step0:
            loss = loss * loss.detach().new_tensor(1e32)
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        if step % 50 == 0 or step == total - 1:
            print("step %d loss %.4f" % (step, loss.item()))


if __name__ == "__main__":
    train()
