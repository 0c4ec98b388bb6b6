"""Steered generation with a key-value cache. The hook edits the output of the
decoder layer in place at every step; the result equals uncached generation."""
import contextlib

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, LAYER, NEW = 60, 1, 10

cfg = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.1,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=0,
)
model = LlamaForCausalLM(cfg).eval()


@contextlib.contextmanager
def steering(layer, vector, strength):
    seen = []

    def hook(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden.add_(strength * vector)
        seen.append(hidden.shape[1])

    handle = layer.register_forward_hook(hook)
    try:
        yield seen
    finally:
        handle.remove()


def complete(prompt, use_cache):
    with torch.no_grad():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW,
            do_sample=False,
            use_cache=use_cache,
        )
    return out[:, prompt.shape[1]:]


def contrast(layer_index):
    with torch.no_grad():
        a = model(input_ids=torch.randint(1, 20, (32, 8)), output_hidden_states=True)
        b = model(input_ids=torch.randint(20, VOCAB, (32, 8)), output_hidden_states=True)
    diff = (a.hidden_states[layer_index + 1] - b.hidden_states[layer_index + 1]).mean((0, 1))
    return diff / diff.norm()


vector = contrast(LAYER)
prompts = torch.randint(1, VOCAB, (3, 6))
plain = complete(prompts, use_cache=True)

layer = model.model.layers[LAYER]
with steering(layer, vector, 10.0) as widths_cached:
    cached = complete(prompts, use_cache=True)
with steering(layer, vector, 10.0) as widths_full:
    full = complete(prompts, use_cache=False)
again = complete(prompts, use_cache=True)

print(f"positions per call with cache: {widths_cached}")
print(f"positions per call without cache: {widths_full}")
print(f"tokens changed by steering: {(cached != plain).sum().item()} of {plain.numel()}")
print(f"cached and uncached steering agree: {torch.equal(cached, full)}")
print(f"plain generation restored afterwards: {torch.equal(again, plain)}")
