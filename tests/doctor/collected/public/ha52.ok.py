"""Activation patching in GPT-2: which layer and position carries the subject of the prompt?"""
from contextlib import ExitStack, contextmanager

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB = 40
LENGTH = 6
SUBJECT = 1


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config)


def make_prompts(n, generator):
    tokens = torch.randint(20, VOCAB, (n, LENGTH), generator=generator)
    tokens[:, SUBJECT] = torch.randint(0, 20, (n,), generator=generator)
    return tokens, tokens[:, SUBJECT]


def train(model, steps=80):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        tokens, answers = make_prompts(64, generator)
        loss = torch.nn.functional.cross_entropy(model(tokens).logits[:, -1], answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


@contextmanager
def hooked(module, hook):
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def cache_run(model, tokens):
    cache = {}
    with ExitStack() as stack:
        for i, block in enumerate(model.transformer.h):

            def keep(module, args, output, i=i):
                cache[i] = output.clone()

            stack.enter_context(hooked(block, keep))
        logits = model(tokens).logits[:, -1]
    return logits, cache


def patched_run(model, tokens, layer, position, clean):
    def patch(module, args, output):
        output = output.clone()
        output[:, position] = clean[:, position]
        return output

    with hooked(model.transformer.h[layer], patch):
        return model(tokens).logits[:, -1]


def main():
    model = build_model().train()
    print(f"training loss {train(model):.4f}")
    model.eval()

    clean, answers = make_prompts(32, torch.Generator().manual_seed(2))
    corrupt = clean.clone()
    corrupt[:, SUBJECT] = (answers + 7) % 20
    pick = lambda logits: logits.gather(1, answers[:, None]).mean().item()
    with torch.no_grad():
        clean_logits, cache = cache_run(model, clean)
        high, low = pick(clean_logits), pick(model(corrupt).logits[:, -1])
        print(f"answer logit: clean {high:.3f}, corrupt {low:.3f}")
        for layer in range(len(cache)):
            effects = []
            for position in range(LENGTH):
                logits = patched_run(model, corrupt, layer, position, cache[layer])
                effects.append((pick(logits) - low) / (high - low))
            print(f"layer {layer}: " + "  ".join(f"{effect:+.2f}" for effect in effects))
        print(f"answer logit of the corrupt prompts afterwards: {pick(model(corrupt).logits[:, -1]):.3f}")


if __name__ == "__main__":
    main()
