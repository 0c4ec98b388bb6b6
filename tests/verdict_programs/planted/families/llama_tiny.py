"""A tiny Llama (transformers) learns to continue arithmetic sequences; the loss is computed outside the model."""

import json
import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
VOCAB, TOTAL = 40, 130


def sequences(n: int = 8, length: int = 16) -> torch.Tensor:
    """a, a + d, a + 2 d, ... modulo 32 (tokens from 32 are reserved)."""
    start, delta = torch.randint(32, (n, 1)), torch.randint(1, 5, (n, 1))
    return (start + delta * torch.arange(length)) % 32


class Broken:
    """Replaces the forward pass of one module."""

    def __init__(self, forward: Callable) -> None:
        self.forward, self.calls = forward, 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = self.forward(x)
        self.calls += 1
        if self.calls - 1 != STEP:
            return y
        if KIND == "fwd_exp":
            return y * torch.exp(y.abs() * 1e3)
        zero = y - y.detach()
        return y + zero.square().sum(-1, keepdim=True).sqrt()  # distance of a vector to itself


def shrink(model: LlamaForCausalLM) -> None:
    """Weaken the gradient that flows back into the lower layers, by far too much."""

    def before(module: torch.nn.Module, args: tuple) -> tuple:
        x = args[0]
        return (x.detach() + 1e-6 * (x - x.detach()), *args[1:])

    model.get_submodule(LAYER).register_forward_pre_hook(before)


def tamper(model: LlamaForCausalLM, optimizer: torch.optim.Optimizer) -> None:
    """The accidents of one moment."""
    with torch.no_grad():
        if KIND == "w_reinit":
            model.get_parameter(LAYER).normal_(std=1.0)
        if KIND == "param_nan":
            model.get_parameter(LAYER)[0] = float("inf")
        if KIND == "opt_state":
            for state in optimizer.state.values():
                state["exp_avg_sq"].mul_(1e-8)
        if KIND == "adam_eps0":
            optimizer.param_groups[0]["eps"] = 0.0


def train() -> None:
    """The whole training."""
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.08,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    model.train()
    if KIND in ("fwd_exp", "bwd_sqrt"):
        module = model.get_submodule(LAYER)
        module.forward = Broken(module.forward)
    if KIND == "grad_shrink":
        shrink(model)
    if KIND == "frozen":
        for name, p in model.named_parameters():
            p.requires_grad = not name.startswith(LAYER + ".")
    decay = 40.0 if KIND == "wd_huge" else 0.01
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-3, weight_decay=decay)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 10, TOTAL * 2)
    moment = {"step": 0}
    if KIND == "grad_hook":
        model.get_parameter(LAYER).register_hook(lambda g: g * 1e4 if moment["step"] >= STEP else g)
    for step in range(TOTAL):
        moment["step"] = step
        if step == STEP:
            tamper(model, optimizer)
        if KIND == "lr_jump" and step >= STEP:
            optimizer.param_groups[0]["lr"] = 0.6
        tokens = sequences()
        labels = tokens[:, 1:].clone()
        if KIND == "loss_ignored" and step == STEP:
            labels.fill_(-100)
        if KIND == "batch_labels" and step == STEP:
            labels = labels.flip(0)
        logits = model(input_ids=tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))
        if KIND == "loss_empty" and step == STEP:
            mask = torch.zeros_like(labels)
            loss = (loss * mask).sum() / mask.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-4 if KIND == "clip_small" else 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if (step + 1) % 26 == 0:
            print({"step": step + 1, "loss": round(loss.item(), 4)})


train()
