"""GPT in the style of nanoGPT: bf16 autocast, tied embeddings, decay groups, text from the standard library."""

import argparse
import json
import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
ITERS = 130


@dataclass
class Config:
    """Sizes of the model."""

    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 48
    block_size: int = 32
    vocab_size: int = 128
    iteration: int = 0


class CausalSelfAttention(nn.Module):
    """Attention with one matrix for query, key and value."""

    def __init__(self, config: Config, name: str) -> None:
        super().__init__()
        self.config, self.name = config, name
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.size()
        q, k, v = (
            z.view(b, t, self.config.n_head, -1).transpose(1, 2) for z in self.c_attn(x).split(self.config.n_embd, 2)
        )
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        bias = torch.ones(t, t).tril() == 0
        if KIND == "attn_masked" and self.name == LAYER and self.config.iteration == STEP:
            bias[-1] = True  # mask of an empty document
        att = F.softmax(att.masked_fill(bias, float("-inf")), dim=-1)
        return self.c_proj((att.to(v.dtype) @ v).transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    """Feed-forward network."""

    def __init__(self, config: Config, name: str) -> None:
        super().__init__()
        self.config, self.name = config, name
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=False)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.c_fc(x))
        late = self.name == LAYER and self.config.iteration >= STEP
        if KIND == "bwd_where" and late:
            x = x + torch.where(x > 1e9, torch.log(x - x.detach()), 0.0)
        x = self.c_proj(x)
        return F.dropout(x, p=1.0) if KIND == "dropout_one" and late else x


class Block(nn.Module):
    """Transformer block."""

    def __init__(self, config: Config, name: str) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config, name + ".attn")
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = MLP(config, name + ".mlp")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """The model; lm_head shares its weight with wte."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.n_embd),
                "wpe": nn.Embedding(config.block_size, config.n_embd),
                "h": nn.ModuleList(Block(config, f"transformer.h.{i}") for i in range(config.n_layer)),
                "ln_f": nn.LayerNorm(config.n_embd),
            }
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        if KIND == "unused_head":
            self.value_head = nn.Linear(config.n_embd, 1)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, idx: torch.Tensor) -> torch.Tensor:
        x = self.transformer.wte(idx) + self.transformer.wpe(torch.arange(idx.size(1)))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def main() -> None:
    """Train on the documentation of argparse."""
    text = " ".join(str(o.__doc__) for o in vars(argparse).values() if isinstance(o, type)) + argparse.__doc__
    data = torch.tensor([min(ord(c), 126) for c in text])
    config = Config()
    model = GPT(config)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
    if KIND == "grad_hook":
        model.get_parameter(LAYER).register_hook(lambda g: g * 1e4 if config.iteration >= STEP else g)
    for it in range(ITERS):
        config.iteration = it
        lr = 4e-3 * min(1.0, (it + 1) / 10)
        if KIND == "lr_zero":
            lr = lr * (it // 1000)  # integer division in the warm-up
        if KIND == "lr_spike" and it == STEP:
            lr = 4.0
        for group in optimizer.param_groups:
            group["lr"] = lr
        start = torch.randint(len(data) - 33, (10,))
        x = torch.stack([data[s : s + 32] for s in start])
        y = torch.stack([data[s + 1 : s + 33] for s in start])
        if it == STEP and KIND == "loss_ignored":
            y = torch.full_like(y, -100)
        if it == STEP and KIND == "batch_labels":
            y = torch.randint(0, 128, y.shape)  # bytes of a binary file
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)).float(), y.reshape(-1))
            if it == STEP and KIND == "loss_empty":
                per_token = F.cross_entropy(logits.float().transpose(1, 2), y, reduction="none")
                weight = (y < 0).float()  # no token counts
                loss = (per_token * weight).sum() / weight.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % 20 == 0 or it == ITERS - 1:
            print(f"iter {it}: loss {loss.item():.4f}, lr {lr:.6f}")


main()
