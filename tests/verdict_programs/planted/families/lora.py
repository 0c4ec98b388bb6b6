"""LoRA (peft) on a small random Llama: only the adapters and the head are trained."""

import json
import os

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
FAULT = json.loads(os.environ.get("FAULT", "{}"))
KIND, STEP, LAYER = FAULT.get("kind", ""), FAULT.get("step", 0), FAULT.get("layer", "")
torch.manual_seed(FAULT.get("seed", 0))
STEPS = 120


def build() -> nn.Module:
    """Base model with adapters."""
    base = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=48,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=32,
            initializer_range=0.15,
            use_cache=False,
        )
    )
    config = LoraConfig(
        r=4,
        lora_alpha=16,
        lora_dropout=0.0,
        target_modules=["q_proj", "v_proj", "down_proj"],
        modules_to_save=["lm_head"],
    )
    return get_peft_model(base, config)


def batch() -> torch.Tensor:
    """Each token is a fixed function of the previous one."""
    table = torch.randperm(40, generator=torch.Generator().manual_seed(5))
    tokens = [torch.randint(40, (8,))]
    for _ in range(15):
        tokens.append(table[tokens[-1]])
    return torch.stack(tokens, 1)


model = build()
if KIND == "frozen":
    for name, p in model.named_parameters():
        if name.startswith(LAYER + "."):
            p.requires_grad_(False)
trained = [p for p in model.parameters() if p.requires_grad]
if KIND == "not_in_opt":
    trained = [p for n, p in model.named_parameters() if p.requires_grad and not n.startswith(LAYER + ".")]
lr = 0.0 if KIND == "lr_zero" else 5e-3
optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=60.0 if KIND == "wd_huge" else 0.0)
now = 0

if KIND in ("bwd_sqrt", "detach_block"):
    place = model.get_submodule(LAYER)
    old_forward = place.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        """The module with a mistake, from one step on."""
        y = old_forward(x)
        if now < STEP:
            return y
        if KIND == "detach_block":
            return y.detach()
        return y + (y - y.detach()).square().sum(-1, keepdim=True).sqrt()

    place.forward = forward
if KIND == "grad_hook":
    model.get_parameter(LAYER).register_hook(lambda g: g * 1e4 if now >= STEP else g)

for now in range(STEPS):
    tokens = batch()
    labels = tokens.clone()
    if now == STEP:
        if KIND == "w_scale":
            model.get_parameter(LAYER).data.mul_(2000.0)
        if KIND == "param_nan":
            model.get_parameter(LAYER).data.fill_(float("nan"))
        if KIND == "lr_jump":
            optimizer.param_groups[0]["lr"] = 5.0
        if KIND == "batch_labels":
            labels = torch.randint(48, labels.shape)
        if KIND == "opt_state":
            for state in optimizer.state.values():
                state["exp_avg_sq"].mul_(1e-9)
    output = model(input_ids=tokens, labels=labels)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    if now % 20 == 0 or now == STEPS - 1:
        print(f"{now} loss={output.loss.item():.4f}")
