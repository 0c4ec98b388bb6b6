"""Activation steering of a small causal LM with a difference-of-means vector."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

LAYER = 2
VOCAB = 96
SEQ_LEN = 10


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=32,
        n_embd=48,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def sample_prompts(count, low, high, generator):
    return torch.randint(low, high, (count, SEQ_LEN), generator=generator)


@torch.no_grad()
def mean_residual(model, prompts):
    out = model(prompts, output_hidden_states=True)
    return out.hidden_states[LAYER + 1][:, -1].mean(dim=0)


class Steering:
    """Adds `strength * vector` to the residual stream after one block."""

    def __init__(self, block, vector, strength):
        self.block = block
        self.vector = vector
        self.strength = strength
        self.handle = None

    def __enter__(self):
        self.handle = self.block.register_forward_hook(self._add_vector)
        return self

    def __exit__(self, *exc):
        self.handle.remove()
        self.handle = None

    def _add_vector(self, module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden += self.strength * self.vector
        return output


@torch.no_grad()
def next_token_logits(model, prompts):
    return model(prompts).logits[:, -1]


def main():
    generator = torch.Generator().manual_seed(1)
    model = build_model()

    positive = sample_prompts(24, 1, 48, generator)
    negative = sample_prompts(24, 48, VOCAB, generator)
    vector = mean_residual(model, positive) - mean_residual(model, negative)
    vector = vector / vector.norm()
    print(f"steering vector from {len(positive)}+{len(negative)} prompts, layer {LAYER}")

    prompts = sample_prompts(6, 1, VOCAB, generator)
    base = next_token_logits(model, prompts)
    for strength in (0.5, 1.0, 2.0):
        with Steering(model.transformer.h[LAYER], vector, strength):
            steered = next_token_logits(model, prompts)
        shift = (steered - base).abs().amax(dim=-1)
        moved = int((shift > 1e-4).sum())
        print(
            f"strength {strength:.1f}: prompts with changed logits {moved}/{len(prompts)}, "
            f"mean shift {shift.mean():.3f}"
        )


if __name__ == "__main__":
    main()
