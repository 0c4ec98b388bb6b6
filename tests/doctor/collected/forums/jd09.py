"""Steers a causal language model with a direction added to a middle layer."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

LAYER = 2


def build_model():
    config = LlamaConfig(vocab_size=80, hidden_size=48, intermediate_size=96,
                         num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def steering_vector(model, positive, negative):
    def last_state(tokens):
        out = model(input_ids=tokens, output_hidden_states=True)
        return out.hidden_states[LAYER + 1][:, -1].mean(dim=0)

    direction = last_state(positive) - last_state(negative)
    return direction / direction.norm()


class Steering:
    def __init__(self, model, layer, vector, strength):
        self.block = model.model.layers[layer]
        self.vector = vector
        self.strength = strength

    def __enter__(self):
        self.handle = self.block.register_forward_hook(self.add_vector)
        return self

    def __exit__(self, *exc):
        self.handle.remove()

    def add_vector(self, module, args, output):
        hidden = output[0]
        hidden += self.strength * self.vector


@torch.no_grad()
def next_token_logits(model, prompts):
    return model(input_ids=prompts).logits[:, -1]


def main():
    model = build_model()
    positive = torch.randint(0, 40, (6, 10))
    negative = torch.randint(40, 80, (6, 10))
    vector = steering_vector(model, positive, negative)

    prompts = torch.randint(0, 80, (5, 12))
    plain = next_token_logits(model, prompts)
    with Steering(model, LAYER, vector, strength=4.0):
        steered = next_token_logits(model, prompts)
    again = next_token_logits(model, prompts)

    shift = (steered - plain).abs().mean(dim=1)
    for number, value in enumerate(shift.tolist()):
        print(f"prompt {number}: mean logit shift {value:.3f}")
    changed = (steered.argmax(dim=1) != plain.argmax(dim=1)).sum().item()
    print(f"next token changed for {changed} of {len(prompts)} prompts")
    print(f"difference after steering: {(again - plain).abs().max():.3f}")


if __name__ == "__main__":
    main()
