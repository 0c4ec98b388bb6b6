"""Collect prompt representations while a tiny GPT-2 answers, and compare prompts by cosine similarity."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(2)
model = GPT2LMHeadModel(GPT2Config(
    vocab_size=80, n_positions=48, n_embd=32, n_layer=3, n_head=4,
    bos_token_id=0, eos_token_id=79, pad_token_id=79,
)).eval()

activations = {}


def keep(name):
    def hook(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        # generate() runs the prompt first, then one token at a time
        if name not in activations:
            activations[name] = hidden.detach().clone()
    return hook


for i, block in enumerate(model.transformer.h):
    block.register_forward_hook(keep(f"h{i}"))


def answer(prompt, new_tokens=5):
    """Returns the answer and the mean hidden state over the prompt, per layer."""
    activations.clear()
    with torch.no_grad():
        out = model.generate(
            prompt, attention_mask=torch.ones_like(prompt),
            max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False,
        )
    reps = {k: v[0].mean(0) for k, v in activations.items()}
    lengths = {k: v.shape[1] for k, v in activations.items()}
    return out[0, prompt.shape[1]:], reps, lengths


def reference(prompt):
    """Prompt representation of the last block from a plain forward pass."""
    activations.clear()
    with torch.no_grad():
        model(prompt)
    return activations["h2"][0].mean(0)


prompts = [torch.randint(1, 79, (1, n)) for n in (9, 12, 12)]
collected = []
for p in prompts:
    tokens, reps, lengths = answer(p)
    collected.append(reps["h2"])
    print(f"prompt of {p.shape[1]:2d} tokens, answer {tokens.tolist()}, positions averaged {lengths['h2']}")

cos = torch.nn.functional.cosine_similarity
for a in range(3):
    for b in range(a + 1, 3):
        print(f"similarity {a}-{b}: {cos(collected[a], collected[b], dim=0).item():.4f}")
agree = [bool(torch.allclose(collected[i], reference(p), atol=1e-4)) for i, p in enumerate(prompts)]
print("same as a forward pass over the prompt:", agree)
