"""Define small language models in plain PyTorch for the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention

VOCABULARY = 2048
#: the CPU seconds of each step between the end of its backward and the end of the step
AFTER_BACKWARD: list[float] = []


class Block(nn.Module):
    def __init__(self, width: int, heads: int, experts: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.router = nn.Linear(width, experts, bias=False) if experts > 1 else None
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(width, -1)
        )
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self._experts(self.ln2(x))

    def _experts(self, x: Tensor) -> Tensor:
        if self.router is None:
            return self.down[0](gelu(self.up[0](x)))
        flat, gates = x.flatten(0, 1), self.router(x).flatten(0, 1).softmax(-1)
        best, chosen = gates.max(-1)
        out = torch.zeros_like(flat)
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            mine = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, mine, down(gelu(up(flat[mine]))) * best[mine, None])
        return out.view_as(x)


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, length: int, experts: int = 1) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, experts) for _ in range(layers))
        self.ln = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02 if "down" not in name else 0.01)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return linear(self.ln(x), self.tokens.weight)


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    heads: int
    batch: int
    length: int
    experts: int = 1


SIZES = {
    "0.33M": Size(64, 4, 4, batch=8, length=64),
    "5M": Size(256, 6, 8, batch=8, length=64),
    "26M": Size(512, 8, 8, batch=8, length=64),
    "MoE 64x4": Size(64, 4, 4, batch=8, length=64, experts=64),
}


class Training:
    """Create a model, its optimizer and its data, which are the same every time."""

    def __init__(self, size: Size) -> None:
        torch.manual_seed(0)
        self.model = GPT(size.width, size.layers, size.heads, size.length, size.experts)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, foreach=True)
        generator, shape = torch.Generator("cpu").manual_seed(1), (16, size.batch, size.length + 1)
        data = torch.randint(VOCABULARY, shape, generator=generator, device="cpu")
        self.data = data.to(torch.get_default_device())
        self.steps = 0

    def step(self, before: Callable[[], object] | None = None, after: Callable[[], object] | None = None) -> Tensor:
        batch = self.data[self.steps % len(self.data)]
        self.steps += 1
        self.optimizer.zero_grad()
        out = self.model(batch[:, :-1])
        loss = cross_entropy(out.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        start = time.thread_time()
        if before is not None:
            before()
        self.optimizer.step()
        if after is not None:
            after()
        AFTER_BACKWARD.append(time.thread_time() - start)
        return loss.detach()
