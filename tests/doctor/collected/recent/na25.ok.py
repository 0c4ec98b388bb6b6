"""Optimizer fused into the backward pass for a GPT-2 with tied embeddings: each
parameter is updated and its gradient dropped as soon as it is accumulated."""
import copy

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, SEQ, STEPS, LR = 40, 14, 25, 3e-3

cfg = GPT2Config(
    vocab_size=VOCAB, n_positions=SEQ, n_embd=32, n_layer=2, n_head=4,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
)


def batches(seed):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        start = torch.randint(0, VOCAB, (12, 1), generator=gen)
        yield (start + 3 * torch.arange(SEQ)) % VOCAB


def fuse_optimizer(model):
    """One small optimizer per parameter, stepped from a hook."""
    optimizers = {p: torch.optim.AdamW([p], lr=LR, foreach=False) for p in model.parameters()}
    calls = {p: 0 for p in optimizers}

    def update(param):
        optimizers[param].step()
        optimizers[param].zero_grad(set_to_none=True)
        calls[param] += 1

    for param in optimizers:
        param.register_post_accumulate_grad_hook(update)
    return optimizers, calls


def train_fused(model):
    optimizers, calls = fuse_optimizer(model)
    for ids in batches(seed=1):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    held = sum(p.grad is not None for p in model.parameters())
    return loss.item(), calls, held


def train_ordinary(model):
    optim = torch.optim.AdamW(model.parameters(), lr=LR, foreach=False)
    for ids in batches(seed=1):
        loss = model(input_ids=ids, labels=ids).loss
        optim.zero_grad()
        loss.backward()
        optim.step()
    return loss.item()


ordinary = GPT2LMHeadModel(cfg)
fused = copy.deepcopy(ordinary)

loss_ordinary = train_ordinary(ordinary)
loss_fused, calls, held = train_fused(fused)

gap = max((a - b).abs().max().item() for a, b in zip(ordinary.parameters(), fused.parameters()))
print(f"loss: ordinary {loss_ordinary:.5f}, fused {loss_fused:.5f}")
print(f"largest weight difference {gap:.2e}")
print(f"updates per parameter: min {min(calls.values())}, max {max(calls.values())}")
print(f"gradients still held after training: {held}")
print(f"tied table updated {calls[fused.lm_head.weight]} times in {STEPS} steps")
