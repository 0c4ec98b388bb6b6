"""Generate from a small Llama while a style vector is added to the residual
stream of everything that follows the prompt (the prompt itself is untouched)."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, LAYER, NEW = 60, 1, 12

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


class StyleSteering:
    """Adds `strength * vector` to the output of one decoder layer from
    position `start` on."""

    def __init__(self, layer, vector, strength):
        self.vector = vector
        self.strength = strength
        self.start = 0
        self.handle = layer.register_forward_hook(self.apply)

    def after_prompt(self, prompt):
        self.start = prompt.shape[1]
        return self

    def apply(self, module, args, output):
        start = self.start
        steered = output.clone()
        steered[:, start:] += self.strength * self.vector
        return steered

    def remove(self):
        self.handle.remove()


def style_vector(model, styled, neutral):
    with torch.no_grad():
        a = model(input_ids=styled, output_hidden_states=True).hidden_states[LAYER + 1]
        b = model(input_ids=neutral, output_hidden_states=True).hidden_states[LAYER + 1]
    diff = a.mean((0, 1)) - b.mean((0, 1))
    return diff / diff.norm()


def complete(model, prompt):
    out = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW,
        do_sample=False,
    )
    return out[0, prompt.shape[1]:]


model = LlamaForCausalLM(cfg).eval()
styled = torch.randint(1, 20, (32, 10))
neutral = torch.randint(20, VOCAB, (32, 10))
vector = style_vector(model, styled, neutral)

prompts = [torch.randint(1, VOCAB, (1, n)) for n in (5, 7, 9)]
plain = [complete(model, p) for p in prompts]

changed = 0
for prompt, before in zip(prompts, plain):
    steering = StyleSteering(model.model.layers[LAYER], vector, strength=12.0).after_prompt(prompt)
    after = complete(model, prompt)
    steering.remove()
    different = (after != before).sum().item()
    changed += different
    print(f"prompt of {prompt.shape[1]} tokens")
    print(f"  plain   {before.tolist()}")
    print(f"  steered {after.tolist()}")

total = NEW * len(prompts)
print(f"generated tokens changed by steering: {changed} of {total}")
