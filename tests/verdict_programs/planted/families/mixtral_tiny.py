"""A tiny Mixtral (transformers, mixture of experts) learns to repeat a pattern; the model computes the loss."""

import json
import os

import torch
from torch import nn
from transformers import MixtralConfig, MixtralForCausalLM

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
TOTAL = 120
progress = {"step": 0}


def pattern(n: int = 8) -> torch.Tensor:
    """A pattern of four tokens, repeated four times."""
    return torch.randint(1, 12, (n, 4)).repeat(1, 4)


def wrap(model: MixtralForCausalLM) -> None:
    """Plant a mistake in the forward pass of one module."""
    module = model.get_submodule(LAYER)
    inner = module.forward

    def masked_mean(x: torch.Tensor) -> torch.Tensor:
        y = inner(x)
        if progress["step"] == STEP:
            used = torch.zeros(len(y), 1, 1)
            y = y - (y * used).sum(0, keepdim=True) / used.sum()
        return y

    def detached(*args: torch.Tensor, **kwargs: torch.Tensor) -> object:
        if progress["step"] < STEP:
            return inner(*args, **kwargs)
        with torch.no_grad():
            return inner(*args, **kwargs)

    module.forward = masked_mean if KIND == "fwd_mask_mean" else detached


class Run:
    """Model, optimizer and schedule."""

    def __init__(self) -> None:
        config = MixtralConfig(
            vocab_size=32,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=True,
            router_aux_loss_coef=0.01,
            max_position_embeddings=32,
            initializer_range=0.08,
            use_cache=False,
        )
        self.model = MixtralForCausalLM(config)
        if KIND in ("fwd_mask_mean", "detach_block"):
            wrap(self.model)
        left_out = LAYER + "." if KIND == "not_in_opt" else "-"
        parameters = [p for n, p in self.model.named_parameters() if not n.startswith(left_out)]
        lr = {"lr_high": 3.0, "lr_zero": 0.0}.get(KIND, 4e-3)
        self.optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.factor)

    @staticmethod
    def factor(step: int) -> float:
        """Linear decay."""
        left = TOTAL - step
        if KIND == "lr_nan" and step >= STEP:
            left = left * float("inf")
        if KIND == "lr_spike" and step == STEP:
            left *= 500
        return left / TOTAL

    def accident(self) -> None:
        """Between two steps."""
        if KIND == "w_scale":
            with torch.no_grad():
                self.model.get_parameter(LAYER).mul_(60)
        if KIND == "adam_eps0":
            for group in self.optimizer.param_groups:
                group["eps"] = 0

    def one_step(self, step: int) -> float:
        """Forward, backward, update."""
        progress["step"] = step
        tokens = pattern()
        labels = tokens.clone()
        labels[:, :4] = -100
        if step == STEP:
            self.accident()
            if KIND == "loss_ignored":
                labels[:] = -100
            if KIND == "batch_labels":
                labels[:, 4:] = torch.randint(1, 24, labels[:, 4:].shape)
        loss = self.model(input_ids=tokens, labels=labels).loss
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3 if KIND == "clip_small" else 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


run = Run()
for i in range(TOTAL):
    value = run.one_step(i)
    if i % 24 == 0 or i == TOTAL - 1:
        print(f"{i:4d} {value:.4f}")
