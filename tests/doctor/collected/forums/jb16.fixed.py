"""Activation steering of a Llama-style model on a batch of prompts."""
from contextlib import contextmanager

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(15)
torch.set_num_threads(1)

LAYER = 1
TARGET_TOKEN = 17


def build_model():
    config = LlamaConfig(
        vocab_size=80,
        hidden_size=40,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        initializer_range=0.1,
    )
    return LlamaForCausalLM(config).eval()


@contextmanager
def steering(model, layer, vector, alpha):
    """Adds alpha * vector to the residual stream behind one decoder layer."""

    def hook(module, args, output):
        hidden_states = output[0] if isinstance(output, tuple) else output
        hidden_states += alpha * vector

    handle = model.model.layers[layer].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def target_logit(model, prompts):
    logits = model(input_ids=prompts, use_cache=False).logits
    return logits[:, -1, TARGET_TOKEN]


def main():
    model = build_model()
    prompts = torch.randint(0, 80, (5, 12))
    direction = model.lm_head.weight[TARGET_TOKEN].detach()
    direction = direction / direction.norm()

    plain = target_logit(model, prompts)
    shifts = {}
    for alpha in (1.0, 4.0):
        with steering(model, LAYER, direction, alpha):
            shifts[alpha] = target_logit(model, prompts) - plain

    for i in range(len(prompts)):
        row = "  ".join(f"alpha {alpha:.0f}: {shift[i].item():+.4f}" for alpha, shift in shifts.items())
        print(f"prompt {i}: logit {plain[i].item():+.4f}  shift {row}")
    strong = shifts[4.0]
    print(f"mean shift {strong.mean().item():+.4f}  prompts moved {int((strong.abs() > 1e-6).sum())}/{len(prompts)}")
    again = target_logit(model, prompts)
    print(f"unsteered model unchanged: {torch.equal(again, plain)}")


if __name__ == "__main__":
    main()
