"""Modular addition with a small transformer; each update adds up the gradients of several micro-batches."""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
P, D, MICRO, UPDATES = 11, 48, 3, 130
state = {"update": 0}


def at(kind: str, name: str) -> bool:
    """Whether this module has the fault now."""
    return kind == KIND and name == LAYER and state["update"] >= STEP


class CausalAttention(nn.Module):
    """Attention with torch's fused function."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.wq, self.wk = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)
        self.wv, self.wo = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (w(x).unflatten(-1, (4, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if at("attn_masked", self.name):
            score = (q @ k.mT).masked_fill(torch.ones(4, 4).tril(-1) == 0, float("-inf"))  # wrong diagonal
            return self.wo((score.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """Gated feed-forward part."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.w1, self.w2, self.w3 = nn.Linear(D, 2 * D), nn.Linear(2 * D, D), nn.Linear(D, 2 * D)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = F.silu(self.w1(x))
        if at("fwd_log", self.name):
            gate = gate.log()
        y = self.w2(gate * self.w3(x))
        return y.detach() if at("detach_block", self.name) else y


class TransformerLayer(nn.Module):
    """Pre-norm layer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.attention_norm, self.ffn_norm = nn.RMSNorm(D), nn.RMSNorm(D)
        self.attention, self.ffn = CausalAttention(name + ".attention"), SwiGLU(name + ".ffn")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if KIND == "grad_shrink" and self.name == LAYER:
            x = x.detach() * (1 - 1e-6) + x * 1e-6
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Adder(nn.Module):
    """Reads a + b = and answers with the sum modulo P."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(P + 5, D)
        self.position = nn.Parameter(torch.randn(4, D) * 0.1)
        self.layers = nn.ModuleList(TransformerLayer(f"layers.{i}") for i in range(3))
        self.norm = nn.RMSNorm(D)
        self.output = nn.Linear(D, P)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))[:, -1]


def problem(micro: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random sums."""
    a, b = torch.randint(P, (2, 64))
    plus, equals = torch.full_like(a, P), torch.full_like(a, P + 1)
    answer = (a + b) % P
    if KIND == "labels_random":
        answer = answer[torch.randperm(64)]
    if state["update"] == STEP and micro == 1:
        if KIND == "batch_labels":
            answer = (answer + torch.randint(1, P, answer.shape)) % P
        if KIND == "loss_ignored":
            answer = torch.full_like(answer, -100)
    return torch.stack([a, plus, b, equals], 1), answer


def train(model: Adder, optimizer: torch.optim.Optimizer) -> None:
    """The training loop."""
    for update in range(UPDATES):
        state["update"] = update
        if update == STEP and KIND == "w_reinit":
            nn.init.normal_(model.get_parameter(LAYER), std=2.0)
        if update == STEP and KIND == "adam_eps0":
            optimizer.param_groups[0]["eps"] = 0.0
        optimizer.zero_grad()
        total = 0.0
        for micro in range(MICRO):
            tokens, answer = problem(micro)
            loss = F.cross_entropy(model(tokens), answer) / MICRO
            if KIND == "loss_empty" and update == STEP and micro == 1:
                chosen = torch.zeros(len(answer))  # weights of the samples
                loss = (loss * chosen).sum() / chosen.sum()
            loss.backward()
            total += loss.item()
        optimizer.step()
        if update % 20 == 0 or update == UPDATES - 1:
            print(f"update {update:3d} loss {total:.4f}")


if __name__ == "__main__":
    adder = Adder()
    names = [n for n, _ in adder.named_parameters() if not (KIND == "not_in_opt" and n.startswith(LAYER + "."))]
    rate = 2.0 if KIND == "lr_high" else 3e-3
    train(adder, torch.optim.AdamW([adder.get_parameter(n) for n in names], lr=rate, betas=(0.9, 0.98)))
