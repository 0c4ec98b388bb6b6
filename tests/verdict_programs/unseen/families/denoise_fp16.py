"""Residual denoiser of 1-d signals in float16 autocast with a GradScaler and Adam."""
import json
import os

import torch
from torch import nn

torch.set_num_threads(1)
F = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = F.get("kind", ""), F.get("step", 0), F.get("layer", "")
torch.manual_seed(F.get("seed", 0))
WIDTH = 48


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.expand, self.reduce = nn.Linear(WIDTH, 96), nn.Linear(96, WIDTH)
        self.power = 1

    def forward(self, x):
        h = torch.relu(self.expand(self.norm(x)))
        if self.power > 1:
            h = (h.to(torch.float16) + 1).mul(12) ** self.power
        return x + self.reduce(h)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(32, WIDTH)
        self.parts = nn.ModuleList([Part() for _ in range(4)])
        self.write = nn.Linear(WIDTH, 32)

    def forward(self, signal):
        x = self.read(signal)
        for part in self.parts:
            x = part(x)
        return self.write(x)


def signals(n=48):
    t = torch.linspace(0, 1, 32)
    clean = torch.sin(6.28 * (torch.rand(n, 1) * 2 + 0.5) * t + 6.28 * torch.rand(n, 1)) * (1 + torch.rand(n, 1))
    return clean + 0.3 * torch.randn(n, 32), clean


def step_faults(step, model, optimizer):
    if step != STEP:
        return
    if KIND == "fp16_overflow":
        model.get_submodule(LAYER).power = 6
    elif KIND == "w_scale":
        model.get_parameter(LAYER).data.mul_(-90)
    elif KIND == "opt_state":
        for s in optimizer.state.values():
            s["exp_avg_sq"].mul_(1e-9)


def main():
    model = Denoiser()
    if KIND == "frozen":
        for name, p in model.named_parameters():
            p.requires_grad = not name.startswith(LAYER + ".")
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0 if KIND == "lr_zero" else 2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**11)
    for step in range(160):
        noisy, clean = signals()
        step_faults(step, model, optimizer)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            guess = model(noisy)
        loss = nn.functional.mse_loss(guess.float(), clean)
        if KIND == "fp16_loss" and step >= STEP:
            loss = loss.double().mul(1e31).float()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if KIND == "grad_hook" and step == STEP:
            p = model.get_parameter(LAYER)
            p.grad = p.grad * 1e4
        scaler.step(optimizer)
        scaler.update()
        if step % 40 == 0 or step == 159:
            print(step, "%.5f" % loss.item())


main()
