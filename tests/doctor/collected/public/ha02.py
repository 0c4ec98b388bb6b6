"""Steer a batch of prompts with a difference-of-means direction in the residual stream of GPT-2."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 120
LAYER = 2
STRENGTH = 6.0


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=64,
        n_embd=48,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.08,
    )
    return GPT2LMHeadModel(config).eval()


def make_prompts(low, high, n=8, length=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, (n, length), generator=generator)


@torch.no_grad()
def residual_at(model, input_ids, layer):
    outputs = model(input_ids, output_hidden_states=True, use_cache=False)
    return outputs.hidden_states[layer + 1][:, -1]


def steering_direction(model, layer):
    positive = residual_at(model, make_prompts(1, 40, seed=1), layer)
    negative = residual_at(model, make_prompts(80, VOCAB, seed=2), layer)
    direction = positive.mean(dim=0) - negative.mean(dim=0)
    return direction / direction.norm()


class Steering:
    def __init__(self, model, layer, direction, strength):
        self.block = model.transformer.h[layer]
        self.vector = strength * direction
        self.handle = None

    def hook(self, module, args, output):
        hidden = output[0]
        hidden += self.vector
        return output

    def __enter__(self):
        self.handle = self.block.register_forward_hook(self.hook)
        return self

    def __exit__(self, *exc):
        self.handle.remove()
        self.handle = None


@torch.no_grad()
def next_token_logits(model, input_ids):
    return model(input_ids, use_cache=False).logits[:, -1]


def main():
    model = build_model()
    direction = steering_direction(model, LAYER)
    prompts = make_prompts(1, VOCAB, n=5, length=12, seed=3)

    plain = next_token_logits(model, prompts)
    with Steering(model, LAYER, direction, STRENGTH):
        steered = next_token_logits(model, prompts)

    shift = (steered - plain).abs().mean(dim=-1)
    changed = steered.argmax(dim=-1) != plain.argmax(dim=-1)
    for i in range(len(prompts)):
        print(f"prompt {i}: mean logit shift {shift[i]:.4f}, top token changed: {bool(changed[i])}")
    print(f"average shift over the batch: {shift.mean():.4f}")


if __name__ == "__main__":
    main()
