"""Sequence classification with an LSTM."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--ema", action="store_true", help="keep an average of the weights and evaluate it")
args = parser.parse_args()
plant = args.plant
torch.manual_seed(11)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.rnn = nn.LSTM(16, 24, num_layers=2, batch_first=True, dropout=0.2)
        self.out = nn.Linear(24, 5)

    def forward(self, tokens):
        states, (h, c) = self.rnn(self.emb(tokens))
        last = states.mean(1) if plant == "mean-state" else h[-1]
        return self.out(last)


model = Tagger()
if plant == "forget-bias":
    with torch.no_grad():
        model.rnn.bias_hh_l1[24:48] = 1.0
average = torch.optim.swa_utils.AveragedModel(model) if args.ema else None
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
data = torch.Generator().manual_seed(12)
for step in range(8):
    tokens = torch.randint(0, 30, (12, 10), generator=data)
    labels = tokens.sum(1) % 5
    if plant == "dropout" and step == 3:
        torch.manual_seed(99)
    if plant == "token" and step == 6:
        tokens[11, 9] = (tokens[11, 9] + 1) % 30
    if plant == "hidden" and step == 4:
        with torch.no_grad():
            model.rnn.weight_hh_l0[0, 0] += 1e-3
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    if plant == "rnn-grad" and step == 2:
        model.rnn.weight_ih_l0.grad.zero_()
    optimizer.step()
    if average is not None:
        average.update_parameters(model)
        average.eval()
        with torch.no_grad():
            print("average", average(tokens).mean().item())
    print(step, loss.item())
