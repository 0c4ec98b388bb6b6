"""Builds small real models with random weights, without a download."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.support.needs import needs

SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}
SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {**SMALL, **SPECIAL, "vocab_size": 64, "num_key_value_heads": 1}


def gpt2() -> nn.Module:
    needs("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=16, **SPECIAL))


def llama() -> nn.Module:
    needs("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**TEXT))


def mixtral() -> nn.Module:
    needs("transformers")
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(MixtralConfig(**TEXT, num_local_experts=4))


def vit() -> nn.Module:
    needs("transformers")
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(**SMALL, image_size=16, patch_size=8, num_labels=4))


MODELS: dict[str, Callable[[], nn.Module]] = {"gpt2": gpt2, "llama": llama, "mixtral": mixtral, "vit": vit}


def batch(name: str, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator), "labels": torch.tensor([0, 1])}
    ids = torch.randint(64, (2, 12), generator=generator)
    return {"input_ids": ids, "labels": ids}


def build(name: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = MODELS[name]()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    model.train()
    for step in range(steps):
        optimizer.zero_grad()
        model(**batch(name, step)).loss.backward()
        optimizer.step()
