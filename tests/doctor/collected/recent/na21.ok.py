"""Teach a small GPT-2 with tied embeddings two new control tokens; a gradient
mask keeps every row of the old vocabulary exactly where it was."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

OLD_VOCAB, NEW_TOKENS, SEQ = 40, 2, 12
TOTAL = OLD_VOCAB + NEW_TOKENS

cfg = GPT2Config(
    vocab_size=OLD_VOCAB, n_positions=SEQ, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
)
model = GPT2LMHeadModel(cfg)
model.resize_token_embeddings(TOTAL, mean_resizing=False)
model.requires_grad_(False)

table = model.get_input_embeddings().weight
assert model.lm_head.weight is table
table.requires_grad_(True)

keep = torch.zeros(TOTAL, 1)
keep[OLD_VOCAB:] = 1.0
handle = table.register_hook(lambda grad: grad * keep)


def control_batch(gen):
    kind = torch.randint(0, NEW_TOKENS, (16, 1), generator=gen)
    start = torch.randint(0, OLD_VOCAB, (16, 1), generator=gen)
    body = (start + (2 * kind + 1) * torch.arange(SEQ - 1)) % OLD_VOCAB
    return torch.cat([OLD_VOCAB + kind, body], dim=1)


def run_step(optim, ids):
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad(set_to_none=True)
    loss.backward()
    optim.step()
    return loss.item()


before = table.detach().clone()
gen = torch.Generator().manual_seed(5)
optim = torch.optim.AdamW([table], lr=1e-2, weight_decay=0.0)
model.train()
losses = [run_step(optim, control_batch(gen)) for _ in range(40)]
handle.remove()

moved = (table.detach() - before).norm(dim=1)
print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
print(f"new rows moved by {moved[OLD_VOCAB:].mean():.4f}")
print(f"old rows moved by {moved[:OLD_VOCAB].max():.4f}")
print(f"input and output tables are one tensor: {model.lm_head.weight is model.transformer.wte.weight}")
