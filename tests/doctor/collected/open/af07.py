"""Domain adaptation of a GPT-2: the input embeddings stay put, everything else may learn."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(6)
torch.set_num_threads(1)

config = GPT2Config(
    vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4,
    bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
)
model = GPT2LMHeadModel(config)
model.train()


def protect(embedding):
    """The lookup table keeps its pretrained geometry: no gradient reaches it."""
    return embedding.weight.register_hook(torch.zeros_like)


handles = [protect(model.transformer.wte), protect(model.transformer.wpe)]

tracked = {
    "input embeddings": model.transformer.wte.weight,
    "positions": model.transformer.wpe.weight,
    "block 0 mlp": model.transformer.h[0].mlp.c_fc.weight,
    "block 1 attention": model.transformer.h[1].attn.c_attn.weight,
    "final norm": model.transformer.ln_f.weight,
    "output head": model.lm_head.weight,
}
start = {name: p.detach().clone() for name, p in tracked.items()}

opt = torch.optim.Adam(model.parameters(), lr=5e-3)


def domain_batch(step):
    # a narrow domain: counting upwards in steps of three
    first = (torch.arange(8) * 5 + step) % 64
    return (first[:, None] + 3 * torch.arange(10)[None]) % 64


history = []
for step in range(40):
    ids = domain_batch(step)
    loss = model(input_ids=ids, labels=ids).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(loss.item())
    if step % 10 == 0:
        print(f"step {step:2d} loss {loss.item():.4f}")

for h in handles:
    h.remove()

print(f"loss went from {history[0]:.3f} to {history[-1]:.3f}")
for name, p in tracked.items():
    shift = (p.detach() - start[name]).norm() / start[name].norm()
    print(f"{name:<18} relative change {shift.item():.4f}")
with torch.no_grad():
    probe = domain_batch(99)
    guess = model(input_ids=probe).logits[:, :-1].argmax(-1)
    print("next-token accuracy", round((guess == probe[:, 1:]).float().mean().item(), 3))
