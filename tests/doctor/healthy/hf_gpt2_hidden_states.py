"""Train a tiny GPT-2; hooks on its blocks log hidden states, and one on each parameter logs gradient norms."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
model.train()
hidden_norms, grad_norms = {}, {}


def log_hidden(name):
    def hook(module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden_norms.setdefault(name, []).append(hidden.detach().norm().item())

    return hook


for i, block in enumerate(model.transformer.h):
    block.register_forward_hook(log_hidden(f"block{i}"))
    block.attn.register_forward_hook(log_hidden(f"block{i}.attn"))
    block.mlp.register_forward_hook(log_hidden(f"block{i}.mlp"))
for name, param in model.named_parameters():
    param.register_hook(lambda grad, name=name: grad_norms.setdefault(name, []).append(grad.norm().item()))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(4):
    tokens = torch.randint(64, (4, 16))
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, hidden_norms, grad_norms, [p.detach().clone() for p in model.parameters()]]
