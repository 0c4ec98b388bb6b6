"""Teach a GPT-2 two new control tokens and leave the rest of the vocabulary as it was."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(5)
torch.set_num_threads(1)
OLD_VOCAB = 70


def load_pretrained_like():
    cfg = GPT2Config(vocab_size=OLD_VOCAB, n_positions=32, n_embd=24, n_layer=2, n_head=2,
                     bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0,
                     attn_pdrop=0.0)
    return GPT2LMHeadModel(cfg)


def keep_old_rows(weight, old_size):
    """Only rows behind `old_size` are allowed to learn."""
    mask = torch.zeros(weight.shape[0], 1)
    mask[old_size:] = 1.0

    def hook(grad):
        return grad * mask

    return weight.register_hook(hook)


def batches(n, new_ids):
    gen = torch.Generator().manual_seed(11)
    for _ in range(n):
        ids = torch.randint(1, OLD_VOCAB, (6, 12), generator=gen)
        ids[:3, 0] = new_ids[0]
        ids[3:, 0] = new_ids[1]
        ids[:3, 1:] = ids[:3, 1:] % 20 + 1          # control token 0: low ids follow
        ids[3:, 1:] = ids[3:, 1:] % 20 + 40         # control token 1: high ids follow
        yield ids


def main():
    model = load_pretrained_like()
    model.resize_token_embeddings(OLD_VOCAB + 2, mean_resizing=False)
    new_ids = [OLD_VOCAB, OLD_VOCAB + 1]

    for p in model.parameters():
        p.requires_grad_(False)
    table = model.transformer.wte.weight
    table.requires_grad_(True)
    handle = keep_old_rows(table, OLD_VOCAB)

    reference = table.detach().clone()
    opt = torch.optim.AdamW([table], lr=1e-2, weight_decay=0.05)

    model.train()
    for step, ids in enumerate(batches(30, new_ids)):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    handle.remove()

    moved = (table.detach() - reference).abs().amax(dim=1)
    untouched = int((moved[:OLD_VOCAB] == 0).sum())
    print(f"new rows moved by up to {moved[OLD_VOCAB:].max().item():.4f}")
    print(f"old rows still equal to the checkpoint: {untouched} of {OLD_VOCAB}")


if __name__ == "__main__":
    main()
