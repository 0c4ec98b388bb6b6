"""How robust is a decoder to noise at the input of its attention modules? (random weights, toy tokens)"""
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(4)
torch.set_num_threads(1)


def build_model():
    config = LlamaConfig(
        vocab_size=120,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


class AttentionNoise:
    """Adds Gaussian noise to whatever enters the self-attention of the chosen layers."""

    def __init__(self, model, layers, seed=0):
        self.sigma = 0.0
        self.generator = torch.Generator().manual_seed(seed)
        self.handles = [
            model.model.layers[i].self_attn.register_forward_pre_hook(self.perturb, with_kwargs=True)
            for i in layers
        ]

    def perturb(self, module, args, kwargs):
        value = kwargs["hidden_states"]
        noise = torch.randn(value.shape, generator=self.generator)
        return args, {**kwargs, "hidden_states": value + self.sigma * noise}

    def remove(self):
        for handle in self.handles:
            handle.remove()


@torch.no_grad()
def log_probs(model, tokens):
    return F.log_softmax(model(input_ids=tokens, use_cache=False).logits, dim=-1)


def divergence(clean, perturbed):
    kl = F.kl_div(perturbed, clean, log_target=True, reduction="none").sum(-1)
    return kl.mean().item()


def main():
    model = build_model()
    tokens = torch.randint(0, 120, (4, 24))
    clean = log_probs(model, tokens)

    print("sigma   KL(clean || noisy)   top-1 agreement")
    for layers in ([0], [0, 1, 2]):
        noise = AttentionNoise(model, layers)
        for sigma in (0.1, 0.5, 2.0):
            noise.sigma = sigma
            noisy = log_probs(model, tokens)
            agree = (clean.argmax(-1) == noisy.argmax(-1)).float().mean().item()
            print(f"layers {layers} sigma {sigma:.1f}: KL {divergence(clean, noisy):.5f}  agreement {agree:.3f}")
        noise.remove()


if __name__ == "__main__":
    main()
