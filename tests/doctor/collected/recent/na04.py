"""Continue training a small GPT-2 on a new text style while the word
embeddings learn at a tenth of the gradient of the rest of the network."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ = 60, 20
EMBED_SCALE = 0.1
SLOW_MODULES = ("transformer.wte", "lm_head")

cfg = GPT2Config(
    vocab_size=VOCAB, n_positions=SEQ, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0,
)
model = GPT2LMHeadModel(cfg)


def slow_down(model, names, factor):
    handles = []
    for name in names:
        weight = model.get_submodule(name).weight
        handles.append(weight.register_hook(lambda grad: grad * factor))
    return handles


def style_batch(gen, stride):
    start = torch.randint(0, VOCAB, (16, 1), generator=gen)
    return (start + stride * torch.arange(SEQ)) % VOCAB


def grad_norms(ids):
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    return {n: p.grad.norm().item() for n, p in model.named_parameters()}


gen = torch.Generator().manual_seed(11)

optim = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
for step in range(30):
    ids = style_batch(gen, stride=1)
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
print(f"pretraining loss {loss.item():.3f}")

probe = style_batch(gen, stride=7)
full = grad_norms(probe)
slow_down(model, SLOW_MODULES, EMBED_SCALE)
slowed = grad_norms(probe)

old_table = model.transformer.wte.weight.detach().clone()
optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(30):
    ids = style_batch(gen, stride=7)
    loss = model(input_ids=ids, labels=ids).loss
    optim.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optim.step()
print(f"adaptation loss {loss.item():.3f}")

for name in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"):
    print(f"{name}: gradient multiplier {slowed[name] / full[name]:.3f}")
moved = (model.transformer.wte.weight.detach() - old_table).norm(dim=1)
print(f"word vectors moved by {moved.mean():.4f} on average")
