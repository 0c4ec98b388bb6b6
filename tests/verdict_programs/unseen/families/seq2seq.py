"""Encoder-decoder transformer that reverses sequences of digits (with padding)."""
import json
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
spec = json.loads(os.environ.get("FAULT", "{}"))
KIND, AT, SPOT = spec.get("kind"), spec.get("step", 0), spec.get("layer", "")
torch.manual_seed(spec.get("seed", 0))
VOCAB, PAD, BOS, WIDTH, LENGTH, TOTAL = 16, 0, 1, 32, 6, 125
now = -1


class Attention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads, self.blind = heads, False
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.value, self.proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, memory, allowed):
        q, k, v = [t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (self.query(x), self.key(memory), self.value(memory))]
        score = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // self.heads)
        if self.blind and now >= AT:
            allowed = allowed & (torch.arange(x.shape[1]) != 2)[:, None]  # the third query sees nothing
        score = torch.where(allowed, score, torch.tensor(-math.inf))
        return self.proj((torch.softmax(score, -1) @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.fault = ""

    def forward(self, x):
        h = F.gelu(self.up(x))
        if self.fault == "dropout_one" and now >= AT:
            h = h * torch.bernoulli(torch.zeros_like(h))
        y = self.down(h)
        if self.fault == "detach_block" and now >= AT:
            y = torch.from_numpy(y.detach().numpy())
        return y


class Shrink(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 2e-7


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.ff = Attention(), FeedForward()
        self.shrink = False

    def forward(self, x, seen):
        if self.shrink:
            x = Shrink.apply(x)
        y = self.n1(x)
        x = x + self.attn(y, y, seen)
        return x + self.ff(self.n2(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.cross, self.ff = Attention(), Attention(), FeedForward()

    def forward(self, x, memory, causal, seen):
        y = self.n1(x)
        x = x + self.attn(y, y, causal)
        x = x + self.cross(self.n2(x), memory, seen)
        return x + self.ff(self.n3(x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 4, WIDTH)
        self.where_enc = nn.Parameter(0.3 * torch.randn(LENGTH, WIDTH))
        self.where_dec = nn.Parameter(0.3 * torch.randn(LENGTH, WIDTH))
        self.encoder = nn.ModuleList([EncoderLayer() for _ in range(3)])
        self.decoder = nn.ModuleList([DecoderLayer() for _ in range(2)])
        self.norm = nn.LayerNorm(WIDTH)
        self.generator = nn.Linear(WIDTH, VOCAB)

    def forward(self, source, target):
        seen = (source != PAD)[:, None, None, :]
        x = self.embed(source) + self.where_enc
        for layer in self.encoder:
            x = layer(x, seen)
        causal = torch.ones(LENGTH, LENGTH).tril().bool()
        y = self.embed(target) + self.where_dec
        for layer in self.decoder:
            y = layer(y, x, causal, seen)
        return self.generator(self.norm(y))


def sample(n=16):
    lengths = torch.randint(4, LENGTH + 1, (n,))
    inside = torch.arange(LENGTH) < lengths[:, None]
    source = torch.randint(2, VOCAB, (n, LENGTH)) * inside
    index = (lengths[:, None] - 1 - torch.arange(LENGTH)).clamp(min=0)
    answer = source.gather(1, index) * inside
    prefix = torch.cat([torch.full((n, 1), BOS), answer[:, :-1]], 1)
    return source, prefix, answer


net = Translator()
if KIND == "attn_masked":
    net.get_submodule(SPOT).blind = True
elif KIND in ("dropout_one", "detach_block"):
    net.get_submodule(SPOT).fault = KIND
elif KIND == "grad_shrink":
    net.get_submodule(SPOT).shrink = True
elif KIND == "frozen":
    for p in net.get_submodule(SPOT).parameters():
        p.requires_grad = False
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=5e-3, betas=(0.9, 0.98), weight_decay=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 20) * (900 if KIND == "lr_jump" and s >= AT else 1))
if KIND == "decay_sign":
    opt.param_groups[0]["weight_decay"] = -40.0
if KIND == "grad_hook":
    net.get_parameter(SPOT).register_hook(lambda g: g * 3e4 if now == AT else None)
for now in range(TOTAL):
    source, prefix, answer = sample()
    if now == AT:
        if KIND == "batch_labels":
            answer = torch.where(answer == PAD, PAD, 2 + (answer + 5) % (VOCAB - 2))
        if KIND == "loss_ignored":
            answer = torch.zeros_like(answer)
        if KIND == "w_scale":
            with torch.no_grad():
                net.get_parameter(SPOT).mul_(-60)
        if KIND == "adam_eps0":
            opt.param_groups[0]["eps"] = 0
    logits = net(source, prefix)
    if KIND == "loss_div" and now == AT:
        weight = (answer > VOCAB).float()
        loss = (F.cross_entropy(logits.flatten(0, 1), answer.flatten(), reduction="none") * weight.flatten()).sum() / weight.sum()
    else:
        loss = F.cross_entropy(logits.flatten(0, 1), answer.flatten(), ignore_index=PAD)
    opt.zero_grad()
    loss.backward()
    if KIND == "clip_small":
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    opt.step()
    schedule.step()
    if now % 40 == 0 or now == TOTAL - 1:
        print("step", now, "loss", round(loss.item(), 4))
