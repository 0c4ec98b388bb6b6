# TH314
"""Forbid a token by a hook on the model, which has already computed its loss from the logits."""

import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 4)
        self.lm_head = nn.Linear(4, 8)

    def forward(self, tokens):
        logits = self.lm_head(self.embed(tokens))
        loss = nn.functional.cross_entropy(logits[:-1], tokens[1:])
        return {"loss": loss, "logits": logits}


def forbid(module, args, output):
    mask = torch.zeros(8)
    mask[0] = -1e4
    output["logits"] = output["logits"] + mask


torch.manual_seed(0)
model = LanguageModel()
model.register_forward_hook(forbid)  # <- TH314
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.tensor([1, 5, 2, 7]))["loss"]
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
result = losses
