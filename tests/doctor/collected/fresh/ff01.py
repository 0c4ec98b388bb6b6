"""Steer a tiny Llama towards a concept direction and measure the effect on every prompt."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
)
model = LlamaForCausalLM(config).eval()

positive = torch.randint(0, 97, (6, 8))
negative = torch.randint(0, 97, (6, 8))
prompts = torch.randint(0, 97, (4, 10))
LAYER = 1


def concept_vector():
    # difference of means at the last position, as in contrastive activation addition
    with torch.no_grad():
        pos = model(positive, output_hidden_states=True).hidden_states[LAYER + 1]
        neg = model(negative, output_hidden_states=True).hidden_states[LAYER + 1]
    v = pos[:, -1].mean(0) - neg[:, -1].mean(0)
    return v / v.norm()


class Steering:
    def __init__(self, layer, vector, alpha):
        self.layer, self.vector, self.alpha = layer, vector, alpha
        self.handle = None

    def hook(self, module, args, output):
        # the decoder layer hands back (hidden_states, ...): steer the hidden states
        hidden = output[0]
        hidden += self.alpha * self.vector
        return output

    def __enter__(self):
        self.handle = self.layer.register_forward_hook(self.hook)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


vec = concept_vector()
with torch.no_grad():
    plain = model(prompts).logits[:, -1]
    with Steering(model.model.layers[LAYER], vec, alpha=6.0):
        steered = model(prompts).logits[:, -1]

print("concept vector norm", round(vec.norm().item(), 4))
kl = torch.nn.functional.kl_div(
    steered.log_softmax(-1), plain.log_softmax(-1), log_target=True, reduction="none"
).sum(-1)
for i, value in enumerate(kl.tolist()):
    print(f"prompt {i}: KL to unsteered {abs(value):.6f}")
print("prompts moved by steering:", int((kl.abs() > 1e-6).sum()), "of", len(prompts))
