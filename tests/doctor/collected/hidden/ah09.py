"""New control tokens for a GPT-2: a gradient mask, no weight decay, tied head on purpose."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(48)
torch.set_num_threads(1)
OLD = 60


def mask_rows(weight, first_free):
    """The mask covers the lookup and, through the tie, the output rows as well."""
    keep = torch.zeros(weight.shape[0], 1)
    keep[first_free:] = 1.0
    return weight.register_hook(lambda grad: grad * keep)


def data(steps):
    gen = torch.Generator().manual_seed(2)
    for _ in range(steps):
        ids = torch.randint(1, OLD, (6, 10), generator=gen)
        ids[:3, 0], ids[3:, 0] = OLD, OLD + 1
        ids[:3, 1:] = ids[:3, 1:] % 15 + 1
        ids[3:, 1:] = ids[3:, 1:] % 15 + 40
        yield ids


def main():
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=OLD, n_positions=32, n_embd=24, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    model.resize_token_embeddings(OLD + 2, mean_resizing=False)
    table = model.transformer.wte.weight
    assert table is model.lm_head.weight

    # registered after the resize, when the table has its final size
    handle = mask_rows(table, OLD)
    body = [p for p in model.parameters() if p is not table]
    opt = torch.optim.AdamW([
        {"params": [table], "weight_decay": 0.0},
        {"params": body, "weight_decay": 0.05},
    ], lr=5e-3)
    start = table.detach().clone()

    model.train()
    for step, ids in enumerate(data(20)):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    handle.remove()

    moved = (table.detach() - start).abs().amax(1)
    print("old rows that moved:", int((moved[:OLD] > 0).sum()), "of", OLD)
    print("new rows that moved:", int((moved[OLD:] > 0).sum()), "of 2")


if __name__ == "__main__":
    main()
