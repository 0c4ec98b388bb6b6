"""Find the step and the layer in which a loss spike began, with the flight recorder.

A small GPT learns the text of this file. In step 45, a fault multiplies the gradient of one layer by 1000, as if one
branch of the code did not divide by the loss scale. One step later, the loss has a spike, but it does not show the
layer.

    python examples/gpt_spike.py
"""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tenterhook as th

torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH, HEADS, LENGTH, FAULTY_STEP, FAULTY_LAYER = 32, 4, 32, 45, "blocks.1.mlp.2.weight"
text = torch.tensor(list(Path(__file__).read_bytes()))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = GPT()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
parameters = dict(model.named_parameters())
losses = []
with tempfile.TemporaryDirectory() as folder, th.flight(model, optimizer, folder) as rig:
    for step in range(60):
        start = torch.randint(len(text) - LENGTH, (16, 1))
        chunk = text[start + torch.arange(LENGTH + 1)]
        loss = functional.cross_entropy(model(chunk[:, :-1]).flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == FAULTY_STEP:
            parameters[FAULTY_LAYER].grad.mul_(1000)  # the fault
        optimizer.step()
        losses.append(loss.item())

for step in (0, 44, 45, 46, 59):
    print(f"step {step:2}: loss {losses[step]:.2f}")
verdict = rig.verdict()
print(verdict)

assert verdict.step == FAULTY_STEP and verdict.target == FAULTY_LAYER
assert losses[FAULTY_STEP + 1] > losses[FAULTY_STEP] + 0.5, "the loss has a spike one step after the fault"
