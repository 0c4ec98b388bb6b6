"""Train a tiny GPT-2 with a learned steering vector in one block, then generate with it on and with it off."""

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)

config = GPT2Config(vocab_size=32, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
model.requires_grad_(False)
vector = nn.Parameter(torch.zeros(16))


def steer(module, args, output):
    if isinstance(output, tuple):
        return (output[0] + vector, *output[1:])
    return output + vector


handle = model.transformer.h[0].register_forward_hook(steer)
optimizer = torch.optim.Adam([vector], lr=0.1)
tokens = torch.full((2, 8), 7)
losses = []
for step in range(6):
    optimizer.zero_grad()
    loss = model(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

model.eval()
prompt = torch.tensor([[1, 2, 3]])
steered = model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
handle.remove()
plain = model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0)
result = [losses, vector.detach(), steered, plain, [p.detach().clone() for p in model.parameters()]]
