"""A small diffusion denoiser for points on a curve in 8 dimensions; AdamW, with an average of the weights."""
import copy
import json
import math
import os

import torch
from torch import nn

torch.set_num_threads(1)
cfg = json.loads(os.environ.get("FAULT", "{}"))
KIND, T_FAULT, LAYER = cfg.get("kind", ""), cfg.get("step", 0), cfg.get("layer", "")
torch.manual_seed(cfg.get("seed", 0))
LEVELS, W = 50, 64
betas = torch.linspace(1e-3, 0.12, LEVELS)
keep = torch.cumprod(1 - betas, 0)


class ResBlock(nn.Module):
    issue = None

    def __init__(self):
        super().__init__()
        self.norm, self.time = nn.LayerNorm(W), nn.Linear(16, W)
        self.fc1, self.fc2 = nn.Linear(W, W), nn.Linear(W, W)

    def forward(self, x, t):
        if self.issue == "grad_shrink" and x.requires_grad:
            x.register_hook(lambda g: torch.zeros_like(g) + 1e-7 * g)
            x = x.clone()
        h = self.fc1(self.norm(x)) + self.time(t)
        if self.issue == "fwd_exp":
            h = torch.sinh(h * 300)
        if self.issue == "fwd_div":
            centre = h - h.mean(0, keepdim=True)
            h = centre / (centre - centre).std(0, keepdim=True)
        h = self.fc2(nn.functional.silu(h))
        if self.issue == "detach_block":
            h = torch.tensor(h.tolist())
        return x + h


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, W)
        self.blocks = nn.ModuleList([ResBlock() for _ in range(4)])
        self.out = nn.Sequential(nn.LayerNorm(W), nn.Linear(W, 8))

    def forward(self, noisy, level):
        freq = torch.exp(-math.log(100) * torch.arange(8) / 8)
        angle = level[:, None].float() * freq
        t = torch.cat([angle.sin(), angle.cos()], 1)
        x = self.inp(noisy)
        for block in self.blocks:
            x = block(x, t)
        return self.out(x)


def curve(n):
    s = torch.rand(n, 1) * 2 * math.pi
    return torch.cat([torch.sin(k * s) for k in (1, 2, 3)] + [torch.cos(k * s) for k in (1, 2, 3)] + [s * 0 + 1, s / 3 - 1], 1)


class Average:
    def __init__(self, model, decay=0.98):
        self.model, self.decay = copy.deepcopy(model), decay

    @torch.no_grad()
    def update(self, model):
        for a, p in zip(self.model.parameters(), model.parameters()):
            a.mul_(self.decay).add_(p, alpha=1 - self.decay)


def optimizer_for(model):
    params = model.parameters()
    if KIND == "wrong_model":
        params = copy.deepcopy(model).parameters()
    if KIND == "not_in_opt":
        params = [p for n, p in model.named_parameters() if not n.startswith(LAYER + ".")]
    lr = 1.0 if KIND == "lr_high" else 3e-3
    return torch.optim.AdamW(params, lr=lr, weight_decay=50.0 if KIND == "wd_huge" else 1e-3)


def train(steps=150):
    model = Denoiser()
    average = Average(model)
    opt = optimizer_for(model)
    if KIND == "grad_shrink":
        model.get_submodule(LAYER).issue = KIND
    for step in range(steps):
        x0, noise, level = curve(96), torch.randn(96, 8), torch.randint(LEVELS, (96,))
        a = keep[level][:, None]
        noisy = a.sqrt() * x0 + (1 - a).sqrt() * noise
        if step == T_FAULT:
            if KIND == "data_nan":
                noisy = noisy + (keep[level] - 2).sqrt()[:, None] * 0
            elif KIND in ("fwd_exp", "fwd_div", "detach_block"):
                model.get_submodule(LAYER).issue = KIND
            elif KIND == "state_neg":
                state = opt.state[model.get_parameter(LAYER)]
                state["exp_avg_sq"] = -state["exp_avg_sq"] - 1e-3
            elif KIND == "lr_jump":
                opt.param_groups[0]["lr"] = 1.5
            elif KIND == "w_scale":
                model.get_parameter(LAYER).data.mul_(50.0)
            elif KIND == "opt_state":
                for state in opt.state.values():
                    state["exp_avg_sq"].zero_()
        loss = (model(noisy, level) - noise).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update(model)
        if step % 30 == 0 or step == steps - 1:
            print(f"step {step:3} loss {loss.item():.4f}")


train()
