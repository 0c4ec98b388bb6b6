import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)


def build_model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=120,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


class Steering:
    """Adds a direction to the residual stream after one decoder layer."""

    def __init__(self, model, layer, direction, strength):
        self.layer = model.model.layers[layer]
        self.direction = direction / direction.norm()
        self.strength = strength
        self.handle = None

    def _add_direction(self, module, args, output):
        output.add_(self.strength * self.direction)

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self._add_direction)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


@torch.no_grad()
def final_hidden(model, input_ids):
    return model.model(input_ids=input_ids, use_cache=False).last_hidden_state[:, -1]


@torch.no_grad()
def contrast_direction(model, positive, negative):
    return (final_hidden(model, positive) - final_hidden(model, negative)).mean(dim=0)


def main():
    model = build_model()
    generator = torch.Generator().manual_seed(1)
    positive = torch.randint(3, 60, (6, 8), generator=generator)
    negative = torch.randint(60, 120, (6, 8), generator=generator)
    prompts = torch.randint(3, 120, (4, 10), generator=generator)

    direction = contrast_direction(model, positive, negative)
    plain = final_hidden(model, prompts)
    with Steering(model, layer=1, direction=direction, strength=4.0):
        steered = final_hidden(model, prompts)

    unit = direction / direction.norm()
    shift = (steered - plain) @ unit
    for i, value in enumerate(shift.tolist()):
        print(f"prompt {i}: moved {value:.4f} along the direction")
    print(f"mean shift {shift.mean().item():.4f}")

    restored = final_hidden(model, prompts)
    print(f"unsteered again: {torch.equal(restored, plain)}")


if __name__ == "__main__":
    main()
