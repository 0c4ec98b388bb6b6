"""Fine-tune a causal LM that must never spend probability on reserved vocabulary entries."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(31)
torch.set_num_threads(1)
RESERVED = torch.arange(40, 48)       # placeholders without a meaning yet


def build():
    cfg = LlamaConfig(
        vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return LlamaForCausalLM(cfg)


def forbid(model, ids):
    """Logits of `ids` are pushed down before anything else happens with them."""
    blocked = torch.zeros(48, dtype=torch.bool)
    blocked[ids] = True

    def hook(module, args, output):
        return output.masked_fill(blocked, -1e4)

    return model.lm_head.register_forward_hook(hook)


def batches(n):
    gen = torch.Generator().manual_seed(6)
    for _ in range(n):
        start = torch.randint(3, 20, (8, 1), generator=gen)
        yield start + 2 * torch.arange(9)[None]


def main():
    model = build().train()
    handle = forbid(model, RESERVED)
    head = model.lm_head.weight
    start = head.detach().clone()
    opt = torch.optim.SGD(model.parameters(), lr=0.3)

    pressure = 0.0
    for step, ids in enumerate(batches(20)):
        out = model(input_ids=ids, labels=ids)
        opt.zero_grad()
        out.loss.backward()
        # a blocked logit gets no gradient, so its row of the head has to stay in place
        pressure = max(pressure, head.grad[RESERVED].abs().max().item())
        opt.step()
        if step % 5 == 0:
            mass = out.logits.softmax(-1)[..., RESERVED].sum(-1).mean().item()
            print(f"step {step:2d}: loss {out.loss.item():.4f}  probability on reserved ids {mass:.6f}")
    handle.remove()

    moved = (head.detach() - start).abs().amax(1)
    print(f"largest gradient on reserved rows {pressure:.6f}")
    print(f"largest change of reserved rows   {moved[RESERVED].max().item():.6f}")
    print(f"largest change of other rows      {moved[:40].max().item():.6f}")


if __name__ == "__main__":
    main()
