"""Train only the new tokens of an embedding: a hook masks the gradient of the old rows."""

import torch
import torch.nn.functional as F
from torch import nn

old_tokens, new_tokens = 30, 5
embedding = nn.Embedding(old_tokens + new_tokens, 16)
classifier = nn.Linear(16, 2)
before = embedding.weight.detach().clone()

trainable = torch.zeros(old_tokens + new_tokens, 1)
trainable[old_tokens:] = 1
embedding.weight.register_hook(lambda grad: grad * trainable)

optimizer = torch.optim.SGD([*embedding.parameters(), *classifier.parameters()], lr=0.3)
losses = []
for step in range(8):
    tokens, labels = torch.randint(old_tokens + new_tokens, (16, 10)), torch.randint(2, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(classifier(embedding(tokens).mean(1)), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert torch.equal(embedding.weight[:old_tokens], before[:old_tokens])
assert not torch.equal(embedding.weight[old_tokens:], before[old_tokens:])
result = [losses, [p.detach().clone() for net in (embedding, classifier) for p in net.parameters()]]
