"""Activation steering: push a batch of prompts towards a target token by
adding a direction to the residual stream after one decoder layer."""
import contextlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, LAYER, STRENGTH = 50, 1, 4.0

cfg = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=64,
    initializer_range=0.1,
)
model = LlamaForCausalLM(cfg).eval()


def mean_hidden(ids, layer):
    with torch.no_grad():
        states = model(input_ids=ids, output_hidden_states=True).hidden_states
    return states[layer + 1][:, -1].mean(0)


def contrast_direction(positive, negative, layer):
    direction = mean_hidden(positive, layer) - mean_hidden(negative, layer)
    return direction / direction.norm()


@contextlib.contextmanager
def steering(layer, direction, strength):
    def add_direction(module, args, output):
        hidden = output
        hidden += strength * direction

    handle = model.model.layers[layer].register_forward_hook(add_direction)
    try:
        yield
    finally:
        handle.remove()


def last_logits(ids):
    with torch.no_grad():
        return model(input_ids=ids, use_cache=False).logits[:, -1]


positive = torch.randint(0, VOCAB // 2, (24, 8))
negative = torch.randint(VOCAB // 2, VOCAB, (24, 8))
direction = contrast_direction(positive, negative, LAYER)

prompts = torch.randint(0, VOCAB, (5, 8))
plain = last_logits(prompts)
with steering(LAYER, direction, STRENGTH):
    steered = last_logits(prompts)

shift = steered - plain
first_half = shift[:, : VOCAB // 2].mean(1)
second_half = shift[:, VOCAB // 2:].mean(1)
for i, ids in enumerate(prompts):
    top = steered[i].argmax().item()
    print(
        f"prompt {i}: logit change size {shift[i].norm():.3f}, "
        f"positive words {first_half[i]:+.3f}, negative words {second_half[i]:+.3f}, top token {top}"
    )

changed = (shift.norm(dim=1) > 1e-6).sum().item()
print(f"prompts whose prediction responded to steering: {changed} of {len(prompts)}")

with torch.no_grad():
    again = last_logits(prompts)
print(f"after steering is switched off the logits are restored: {torch.equal(again, plain)}")
