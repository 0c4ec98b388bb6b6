"""Gated convolutions with attention pooling in bfloat16 autocast: which tone is in the noise?"""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
env = json.loads(os.environ.get("FAULT", "{}"))
kind, start, layer = env.get("kind", ""), env.get("step", 0), env.get("layer", "")
torch.manual_seed(env.get("seed", 0))
C, TONES, STEPS = 20, 6, 120
progress = {"i": 0}


class Gated(nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.norm = nn.GroupNorm(1, C)
        self.signal, self.gate = nn.Conv1d(C, C, 3, padding=1), nn.Conv1d(C, C, 3, padding=1)
        self.proj = nn.Conv1d(C, C, 1)

    def forward(self, x):
        on = layer == self.key and progress["i"] >= start
        n = self.norm(x)
        h = torch.tanh(self.signal(n)) * torch.sigmoid(self.gate(n))
        if on and kind == "fwd_exp":
            h = 10.0 ** (h.float().abs() + 39)
        if on and kind == "dropout_one":
            h = F.dropout(h, 1.0, training=True)
        return x + self.proj(h)


class Pool(nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key
        self.score = nn.Conv1d(C, 1, 1)

    def forward(self, x):
        s = self.score(x)
        if kind == "attn_masked" and layer == self.key and progress["i"] >= start:
            length = torch.arange(len(x)) % 4  # a length of 0 masks everything
            s = s.masked_fill((torch.arange(x.shape[2]) >= 8 * length[:, None])[:, None], float("-inf"))
        return (x * s.softmax(-1)).sum(-1)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(1, C, 7, padding=3)
        self.stack = nn.Sequential(*[Gated(f"stack.{i}") for i in range(4)])
        self.pool_a, self.pool_b = Pool("pool_a"), Pool("pool_b")
        self.out = nn.Linear(2 * C, TONES)
        if kind == "unused_head":
            self.loudness = nn.Linear(2 * C, 1)

    def forward(self, wave):
        x = self.stack(self.front(wave))
        both = torch.cat([self.pool_a(x), self.pool_b(x)], 1)
        if kind == "unused_head":
            self.loudness(both)
        return self.out(both)


def tones(n=24, length=32):
    y = torch.randint(TONES, (n,))
    t = torch.arange(length)
    wave = torch.sin((0.3 + 0.4 * y[:, None]) * t + 6.28 * torch.rand(n, 1)) + 0.4 * torch.randn(n, length)
    return wave[:, None], y


model = Listener()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
for i in range(STEPS):
    progress["i"] = i
    wave, y = tones()
    if kind == "labels_random":
        y = y[torch.randperm(len(y))]
    if i == start:
        if kind == "batch_labels":
            y = (y + 3) % TONES
        if kind == "state_neg":
            optimizer.state[model.get_parameter(layer)]["exp_avg_sq"].fill_(-1e-4)
        if kind == "opt_state":
            for st in optimizer.state.values():
                st["exp_avg_sq"].mul_(1e-10)
                st["step"].fill_(1e4)
    if kind == "lr_spike":
        optimizer.param_groups[0]["lr"] = 4e-3 if i != start else 4.0
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(wave)
        loss = F.cross_entropy(logits, y, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if i % 35 == 0 or i == STEPS - 1:
        print(f"{i}/{STEPS} {loss.item():.3f}")
