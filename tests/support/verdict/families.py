"""Build small models of many kinds, each with its loss, data and optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass
class Training:
    """A model in training. `backward(step)` runs everything of a step except the optimizer's step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[[int], Tensor]
    accumulate: int = 1
    scaler: Any = None
    losses: list[float] = field(default_factory=list)

    def backward(self, step: int) -> None:
        self.optimizer.zero_grad()
        for micro in range(self.accumulate):
            loss = self.loss(step * self.accumulate + micro) / self.accumulate
            (self.scaler.scale(loss) if self.scaler is not None else loss).backward()
            self.losses.append(loss.item())

    def step(self, step: int) -> None:
        self.backward(step)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(seed: int, high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def mlp() -> Training:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    loss = lambda step: functional.cross_entropy(model(numbers(step, 16, 8)), tokens(step, 3, 16))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss)


def cnn() -> Training:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip
    loss = lambda step: functional.cross_entropy(model(numbers(step, 8, 1, 8, 8)), tokens(step, 4, 8))
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), loss)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.ln_1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False, is_causal=True)[0]
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width: int = 32, depth: int = 4, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.wte = nn.Embedding(40, width)
        self.h = nn.ModuleList(Block(width) for _ in range(depth))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, 40, bias=False)
        self.head.weight = self.wte.weight
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = self.wte(x)
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.ln_f(x))


def _language(model: nn.Module, *, autocast: torch.dtype | None = None, **options: Any) -> Training:
    def loss(step: int) -> Tensor:
        given = tokens(step, 40, 4, 13)
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            made = model(given[:, :-1])
            return functional.cross_entropy(made.flatten(0, 1).float(), given[:, 1:].flatten())

    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss, **options)


def gpt() -> Training:
    return _language(GPT())


def gpt_checkpointed() -> Training:
    return _language(GPT(checkpointed=True))


def gpt_bf16() -> Training:
    return _language(GPT(), autocast=torch.bfloat16)


def gpt_fp16_scaler() -> Training:
    return _language(GPT(), autocast=torch.float16, scaler=torch.amp.GradScaler("cpu", init_scale=256.0))


def gpt_accumulated() -> Training:
    return _language(GPT(), accumulate=3)


def _hugging_face(model: nn.Module) -> Training:
    def loss(step: int) -> Tensor:
        given = tokens(step, 64, 2, 10)
        return model(input_ids=given, labels=given).loss

    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss)


def llama() -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, attention_dropout=0.1,
    )  # fmt: skip
    return _hugging_face(LlamaForCausalLM(config))


def mixtral() -> Training:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, max_position_embeddings=32,
    )  # fmt: skip
    return _hugging_face(MixtralForCausalLM(config))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 4, 4)
        self.register_buffer("positions", torch.arange(4))
        self.place = nn.Embedding(4, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place(self.positions)
        return self.head(self.encoder(x).mean(1))


def vit() -> Training:
    model = ViT()
    loss = lambda step: functional.cross_entropy(model(numbers(step, 8, 3, 8, 8)), tokens(step, 5, 8))
    return Training(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loss)


class RNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, dropout=0.1)
        self.gru = nn.GRU(24, 16, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(self.embed(x))[0])[0])


def rnn() -> Training:
    model = RNN()
    loss = lambda step: functional.cross_entropy(model(tokens(step, 20, 4, 9)).flatten(0, 1), tokens(step + 1, 20, 36))
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss)


class Rootless(nn.Module):
    """A model that the program never calls itself, like a Lightning module."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
        self.heads = nn.ModuleList(nn.Linear(16, 2) for _ in range(2))

    def training_step(self, x: Tensor) -> Tensor:
        x = self.body(x) * 2
        return sum((head(x).square().mean() for head in self.heads), torch.zeros(()))


def rootless() -> Training:
    model = Rootless()
    return Training(
        model, torch.optim.SGD(model.parameters(), lr=0.1), lambda step: model.training_step(numbers(step, 8, 6))
    )


def lora() -> Training:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    adapters = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.1)
    return _hugging_face(get_peft_model(LlamaForCausalLM(config), adapters))


def spectral() -> Training:
    model = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 12)), nn.LeakyReLU(0.2),
        nn.utils.parametrizations.weight_norm(nn.Linear(12, 12)), nn.LeakyReLU(0.2), nn.Linear(12, 1),
    )  # fmt: skip
    loss = lambda step: functional.softplus(model(numbers(step, 8, 6))).mean()
    return Training(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def compiled() -> Training:
    made = _language(GPT(depth=2))
    inner = made.model
    model = torch.compile(inner, backend="aot_eager")
    return _language(model)


FAMILIES: dict[str, Callable[[], Training]] = {
    one.__name__: one
    for one in (
        mlp, cnn, gpt, gpt_checkpointed, gpt_bf16, gpt_fp16_scaler, gpt_accumulated, llama, mixtral, vit, rnn, rootless,
        lora, spectral,
    )
}  # fmt: skip


def build(name: str, seed: int = 0) -> Training:
    """Build a training with fixed weights."""
    torch.manual_seed(seed)
    return FAMILIES[name]()
