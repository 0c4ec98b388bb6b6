"""Directional ablation during generation: the hook works on prompt and decode steps alike."""
from contextlib import ExitStack, contextmanager

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 100


def build_model():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def project_out(hidden, direction):
    return hidden - (hidden @ direction).unsqueeze(-1) * direction


@contextmanager
def ablated(model, direction):
    """Removes one direction from the residual stream after every decoder layer."""

    def remove_direction(module, args, output):
        if isinstance(output, tuple):
            return (project_out(output[0], direction), *output[1:])
        return project_out(output, direction)

    with ExitStack() as stack:
        for layer in model.model.layers:
            handle = layer.register_forward_hook(remove_direction)
            stack.callback(handle.remove)
        yield


@torch.no_grad()
def find_direction(model, group_a, group_b, layer=1):
    captured = []

    def last_position(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        captured.append(hidden[:, -1].mean(dim=0))

    with model.model.layers[layer].register_forward_hook(last_position):
        model(group_a, use_cache=False)
        model(group_b, use_cache=False)
    difference = captured[0] - captured[1]
    return difference / difference.norm()


@torch.no_grad()
def generate(model, prompts):
    out = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=6,
        do_sample=False,
    )
    return out[:, prompts.shape[1] :]


@torch.no_grad()
def final_component(model, tokens, direction):
    components = []

    def measure(module, args):
        components.append((args[0] @ direction).abs().mean().item())

    with model.model.norm.register_forward_pre_hook(measure):
        model(tokens, use_cache=False)
    return components[0]


def main():
    model = build_model()
    direction = find_direction(
        model, torch.randint(1, 50, (16, 8)), torch.randint(50, VOCAB, (16, 8))
    )
    prompts = torch.randint(1, VOCAB, (4, 8))

    plain = generate(model, prompts)
    before = final_component(model, prompts, direction)
    with ablated(model, direction):
        changed = generate(model, prompts)
        during = final_component(model, prompts, direction)
    again = generate(model, prompts)

    print(f"component along the direction: {before:.4f} normally, {during:.4f} ablated")
    print(f"tokens that differ under ablation: {int((plain != changed).sum())} of {plain.numel()}")
    print(f"tokens that differ afterwards: {int((plain != again).sum())}")


if __name__ == "__main__":
    main()
