"""Fine-tune a tiny causal language model with a restricted vocabulary."""
import functools

import torch
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB = 40
FORBIDDEN = list(range(30, 40))


def mask_vocabulary(forbidden, module, args, output):
    """Tokens outside the domain vocabulary get no probability."""
    penalty = torch.zeros(output.logits.shape[-1])
    penalty[forbidden] = -1e4
    output.logits = output.logits + penalty
    return output


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=16, n_embd=24, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    hook = functools.partial(mask_vocabulary, FORBIDDEN)
    model.register_forward_hook(hook)
    return model


def batches(count, size=8, length=12):
    for _ in range(count):
        yield torch.randint(0, 30, (size, length))


def main():
    torch.manual_seed(1)
    model = build_model()
    with torch.no_grad():
        model.lm_head.weight[FORBIDDEN] += 0.5
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, ids in enumerate(batches(6)):
        output = model(input_ids=ids, labels=ids)
        optimizer.zero_grad()
        output.loss.backward()
        forbidden_grad = model.lm_head.weight.grad[FORBIDDEN].norm().item()
        optimizer.step()
        shifted = output.logits[:, :-1].reshape(-1, VOCAB)
        expected = torch.nn.functional.cross_entropy(shifted, ids[:, 1:].reshape(-1))
        print(
            f"step {step} loss {output.loss.item():.4f} "
            f"loss of the masked logits {expected.item():.4f} "
            f"gradient of the forbidden rows {forbidden_grad:.3f}"
        )


if __name__ == "__main__":
    main()
