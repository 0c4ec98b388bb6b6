"""A language model whose output layer shares the embedding; gradient norms by name."""

import torch
import torch.nn.functional as F
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocab=40, width=24):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        hidden, _ = self.rnn(self.wte(tokens))
        return self.lm_head(hidden)


model = TiedLM()
grad_norms = {}
for name, param in model.named_parameters():
    param.register_hook(lambda grad, name=name: grad_norms.setdefault(name, []).append(grad.norm().item()))

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(6):
    tokens = torch.randint(40, (4, 13))
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
result = [losses, grad_norms, [p.detach().clone() for p in model.parameters()]]
