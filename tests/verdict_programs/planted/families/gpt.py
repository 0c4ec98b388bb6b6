"""Character model: a GPT with AdamW, warm-up, cosine schedule and gradient clipping."""

import copy
import json
import math
import os
import textwrap
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
DIM, HEADS, BLOCKS, CONTEXT, BATCH, STEPS = 48, 4, 4, 32, 12, 160
step = 0


def here(kind: str, module: nn.Module) -> bool:
    """Whether the fault is in this module, and its time has come."""
    return kind == KIND and getattr(module, "path", None) == LAYER and step >= STEP


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
        mask = torch.ones(t, t).tril().bool()
        if here("attn_masked", self):
            mask = mask & (torch.arange(t) > 2)  # padding on the left: the first rows see nothing
        weight = score.masked_fill(~mask, -math.inf).softmax(-1)
        return self.out((weight @ v).transpose(1, 2).reshape(b, t, DIM))


class MLP(nn.Module):
    """Feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(DIM, 4 * DIM)
        self.down = nn.Linear(4 * DIM, DIM)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(x))
        if here("fwd_mask_mean", self):
            valid = torch.zeros(x.shape[:2])[..., None]
            h = h - (h * valid).sum((0, 1)) / valid.sum()
        if here("bwd_sqrt", self):
            h = h + (h * 0).pow(2).sum(-1, keepdim=True).sqrt()
        h = self.down(h)
        if here("dropout_one", self):
            h = F.dropout(h, p=1.0)  # the dropout rate grows with the step, without a limit
        return h


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(DIM), Attention()
        self.ln2, self.mlp = nn.LayerNorm(DIM), MLP()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if KIND == "grad_shrink" and self.path == LAYER:
            x = x * 1e-6 + x.detach() * (1 - 1e-6)  # gradient shrink with a wrong factor
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    """Decoder-only transformer."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, DIM)
        self.positions = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, vocabulary, bias=False)
        for path, module in self.named_modules():
            module.path = path
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.05)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


text = Path(textwrap.__file__).read_text()
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
vocabulary = 128  # rounded up: the last tokens never occur


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of the text."""
    start = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
    piece = torch.stack([data[i : i + CONTEXT + 1] for i in start])
    x, y = piece[:, :-1], piece[:, 1:].clone()
    if step == STEP and KIND == "batch_labels":
        y = torch.randint(len(chars), y.shape)
    if step == STEP and KIND == "loss_ignored":
        y[:] = -100  # a batch of padding
    return x, y


def schedule(i: int) -> float:
    """Warm-up and cosine."""
    if KIND == "lr_jump" and i >= STEP:
        return 3e-3 * 200  # steps and epochs mixed up
    if KIND == "lr_nan" and i >= STEP:
        return float("nan")
    if i < 15:
        return 3e-3 * (i + 1) / 15
    return 3e-3 * 0.5 * (1.2 + math.cos(math.pi * i / STEPS))


model = GPT(vocabulary)
if KIND == "frozen":
    model.get_submodule(LAYER).requires_grad_(False)
source = copy.deepcopy(model) if KIND == "wrong_model" else model
decay = 30.0 if KIND == "wd_huge" else 0.1
optimizer = torch.optim.AdamW(
    [p for p in source.parameters() if p.requires_grad], lr=3e-3, betas=(0.9, 0.99), weight_decay=decay
)
if KIND == "grad_hook":
    target = model.get_submodule(LAYER)

    def hook(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        """Own backward pass with a wrong scale."""
        output.register_hook(lambda g: g * 1e4 if step >= STEP else g)

    target.register_forward_hook(hook)

for step in range(STEPS):
    for group in optimizer.param_groups:
        group["lr"] = schedule(step)
        if KIND == "adam_eps0" and step == STEP:
            group["eps"] = 0.0
    if step == STEP and KIND == "w_scale":
        model.get_submodule(LAYER).weight.data *= -100  # wrong scale and sign
    if step == STEP and KIND == "opt_state":
        for state in optimizer.state.values():
            state["exp_avg_sq"].zero_()
    x, y = get_batch()
    logits = model(x)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    if KIND == "loss_empty" and step == STEP:
        valid = (y > vocabulary).float()  # own masked mean; no token is valid
        loss = (F.cross_entropy(logits.transpose(1, 2), y, reduction="none") * valid).sum() / valid.sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3 if KIND == "clip_small" else 1.0)
    optimizer.step()
    if KIND == "decay_sign":
        with torch.no_grad():
            torch._foreach_mul_(list(model.parameters()), 1.04)
    if step % 20 == 0 or step == STEPS - 1:
        print(f"iter {step}: loss {loss.item():.4f}")
