"""Masked language modelling with a BertModel whose pooler is in the optimizer but not used."""

import hashlib

import torch
from torch import nn
from transformers import BertConfig, BertModel


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


class MLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                vocab_size=24,
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=16,
            )
        )
        self.head = nn.Linear(32, 24)

    def forward(self, ids):
        return self.head(self.bert(input_ids=ids).last_hidden_state)


torch.set_num_threads(1)
torch.manual_seed(79)
model = MLM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for _step in range(600):
    ids = (torch.randint(0, 23, (16, 1)) + torch.arange(10)) % 23
    mask = torch.rand(16, 10) < 0.2
    mask[:, 0] = True
    logits = model(torch.where(mask, 23, ids))
    loss = nn.functional.cross_entropy(logits[mask], ids[mask])
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {sum(losses[-20:]) / 20:.3f}")
assert sum(losses[-20:]) / 20 < 0.4 * losses[0]
print("digest", digest(model))
