"""Push a small Llama along a 'formality' direction and look at the continuations."""
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

LAYER = 1
ALPHA = 4.0


def build_model():
    cfg = LlamaConfig(
        vocab_size=120, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )
    return LlamaForCausalLM(cfg).eval()


class Steering:
    """Adds alpha * direction to the residual stream after one decoder layer."""

    def __init__(self, model, layer, direction, alpha):
        self.block = model.model.layers[layer]
        self.direction = direction
        self.alpha = alpha

    def __call__(self, module, args, output):
        # a decoder layer hands back (hidden_states, ...): the stream comes first
        hidden = output[0]
        hidden += self.alpha * self.direction
        return output

    def __enter__(self):
        self.handle = self.block.register_forward_hook(self)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


@torch.no_grad()
def next_token_logp(model, ids):
    return F.log_softmax(model(input_ids=ids).logits[:, -1], dim=-1)


def main():
    model = build_model()
    direction = F.normalize(torch.randn(32), dim=0)
    prompts = torch.randint(3, 120, (4, 7))

    plain = next_token_logp(model, prompts)
    plain_text = model.generate(prompts, max_new_tokens=8, do_sample=False)
    with Steering(model, LAYER, direction, ALPHA):
        steered = next_token_logp(model, prompts)
        steered_text = model.generate(prompts, max_new_tokens=8, do_sample=False)

    kl = (plain.exp() * (plain - steered)).sum(-1)
    for i in range(len(prompts)):
        changed = int((plain_text[i] != steered_text[i]).sum())
        print(f"prompt {i}: kl to the plain model {kl[i].item():.5f}, tokens changed {changed}/8")
    print("mean kl over the batch", round(kl.mean().item(), 5))


if __name__ == "__main__":
    main()
