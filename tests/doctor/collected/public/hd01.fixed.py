"""Steering a small topic classifier along a concept direction (notebook export)."""
# %%
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


# %% model
class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class TopicNet(nn.Module):
    def __init__(self, vocab=300, width=32, depth=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, width)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


# %% data: documents about sport use the upper half of the vocabulary more often
def make_documents(count, length=24):
    labels = torch.randint(0, 2, (count,))
    upper = torch.rand(count, length) < (0.4 + 0.2 * labels[:, None])
    return torch.randint(0, 150, (count, length)) + 150 * upper, labels


train_docs, train_labels = make_documents(1200)
test_docs, test_labels = make_documents(400)

# %% training
model = TopicNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(3):
    for start in range(0, len(train_docs), 100):
        docs, labels = train_docs[start:start + 100], train_labels[start:start + 100]
        loss = F.cross_entropy(model(docs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()


# %%
@torch.no_grad()
def sport_margin():
    logits = model(test_docs)
    return (logits[:, 1] - logits[:, 0]).mean().item()


baseline = sport_margin()
print(f"margin without steering: {baseline:+.3f}")

# %% concept direction: difference of the class means after block 2
captured = {}


def keep(module, inputs, output):
    captured["mid"] = output.detach()


handle = model.blocks[2].register_forward_hook(keep)
with torch.no_grad():
    model(train_docs)
handle.remove()
direction = captured["mid"][train_labels == 1].mean(0) - captured["mid"][train_labels == 0].mean(0)


# %%
def steer(strength):
    def add_direction(module, inputs, output):
        return output + strength * direction
    return add_direction


# %%
strength = 0.5
handle = model.blocks[2].register_forward_hook(steer(strength))
margin = sport_margin()
handle.remove()
print(f"strength {strength:+.1f}: margin {margin:+.3f}, {'up' if margin > baseline else 'down'}")

# %% the same cell, stronger
strength = 1.0
handle = model.blocks[2].register_forward_hook(steer(strength))
margin = sport_margin()
handle.remove()
print(f"strength {strength:+.1f}: margin {margin:+.3f}, {'up' if margin > baseline else 'down'}")

# %% the same cell, away from sport
strength = -1.0
handle = model.blocks[2].register_forward_hook(steer(strength))
margin = sport_margin()
handle.remove()
print(f"strength {strength:+.1f}: margin {margin:+.3f}, {'up' if margin > baseline else 'down'}")
