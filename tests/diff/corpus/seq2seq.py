"""A GRU encoder and a GRU cell as decoder, which reverse a sequence of tokens."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--chatty", action="store_true")
args = parser.parse_args()
plant = args.plant
torch.set_num_threads(1)
torch.manual_seed(21)
step = 0


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(12, 16)
        self.encoder = nn.GRU(16, 24, batch_first=True)
        self.tgt_embed = nn.Embedding(12, 16)
        self.cell = nn.GRUCell(16, 24)
        self.out = nn.Linear(24, 12)

    def forward(self, src, tgt):
        _, h = self.encoder(self.src_embed(src))
        if plant == "bridge-hook" and step == 4:
            h.register_hook(lambda grad: grad * 1.01)
        h = h[0]
        logits = []
        token = torch.zeros_like(tgt[:, 0])
        for position in range(tgt.shape[1]):
            if plant == "own-token" and step == 5 and position == 3:
                token = logits[-1].argmax(1)
            if plant == "forget" and step == 8 and position == 2:
                h = torch.zeros_like(h)
            h = self.cell(self.tgt_embed(token), h)
            logits.append(self.out(h))
            token = tgt[:, position]
        return torch.stack(logits, 1)


model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
g = torch.Generator().manual_seed(22)
for step in range(18):
    src = torch.randint(1, 12, (16, 6), generator=g)
    tgt = src.flip(1)
    if plant == "token" and step == 6:
        src[9, 2] = src[9, 2] % 11 + 1
    labels = tgt.clone()
    if plant == "label" and step == 7:
        labels[3, 5] = 0
    if plant == "lr" and step >= 9:
        optimizer.param_groups[0]["lr"] = 4e-3
    logits = model(src, tgt)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    decoder = [*model.cell.parameters(), *model.out.parameters()]
    nn.utils.clip_grad_norm_(decoder, 0.05 if plant == "clip" and step >= 3 else 0.1)
    optimizer.step()
    print(step, loss.item())
    if args.chatty:
        print("right", (logits.argmax(2) == tgt).float().mean().item(), [p.grad.norm().item() for p in model.parameters()])
