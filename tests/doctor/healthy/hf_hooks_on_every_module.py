"""Count how often each module of a tiny GPT-2 runs, containers too, and compare with the names one knows."""

from collections import Counter

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)

config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
calls = Counter()
handles = [
    module.register_forward_hook(lambda m, args, out, name=name: calls.update([name]))
    for name, module in model.named_modules()
]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    tokens = torch.randint(32, (2, 8))
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
for handle in handles:
    handle.remove()
result = [losses, dict(calls), [p.detach().clone() for p in model.parameters()]]
