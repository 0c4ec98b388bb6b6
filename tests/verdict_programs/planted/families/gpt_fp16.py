"""A GPT learns to copy: fp16 autocast on the CPU with a GradScaler, AdamW, clipping after unscaling."""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
VOCAB, DIM, HALF, STEPS = 14, 48, 8, 140
it = 0


def late(kind: str, name: str) -> bool:
    """Whether the fault is here and has begun."""
    return kind == KIND and name == LAYER and it >= STEP


class Attend(nn.Module):
    """Causal attention."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        if late("fp16_overflow", self.name):
            q = q * 3e4 / 1e-2  # a temperature that goes to zero
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).flatten(2))


class Feed(nn.Module):
    """Feed-forward part."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.wide, self.narrow = nn.Linear(DIM, 3 * DIM), nn.Linear(3 * DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.wide(x)
        if late("fp16_overflow", self.name):
            h = (h * 1000) ** 2
        y = self.narrow(F.relu(h))
        return y.detach() if late("detach_block", self.name) else y


class Decoder(nn.Module):
    """Layers of attention and feed-forward parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.place = nn.Embedding(2 * HALF, DIM)
        self.attend = nn.ModuleList(Attend(f"attend.{i}") for i in range(3))
        self.feed = nn.ModuleList(Feed(f"feed.{i}") for i in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(7))
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        for i in range(3):
            x = x + self.attend[i](self.norms[2 * i](x))
            x = x + self.feed[i](self.norms[2 * i + 1](x))
        return self.head(self.norms[6](x))


model = Decoder()
if KIND == "frozen":
    model.get_submodule(LAYER).requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3, weight_decay=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
for it in range(STEPS):
    word = torch.randint(VOCAB, (12, HALF))
    ids = torch.cat([word, word], 1)
    target = ids[:, 1:].clone()
    target[:, : HALF - 1] = -100
    if KIND == "batch_labels" and it == STEP:
        target = target.roll(1, 0)
    if KIND == "w_scale" and it == STEP:
        model.get_parameter(LAYER).data *= 25
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), target.flatten())
    if KIND == "fp16_loss" and it >= STEP:
        loss = loss / 1e-12  # divided by the sum of the weights of the samples, which is only epsilon
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if it % 20 == 0 or it == STEPS - 1:
        print(f"{it}: loss {loss.item():.4f} scale {scaler.get_scale()}")
