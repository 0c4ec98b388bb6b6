# TH316
"""Change the sequence that an LSTM returns, although the model uses the last hidden state."""

import torch
from torch import nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        _, (last, _) = self.lstm(x)
        return self.head(last[-1])


def ablate(module, args, output):
    sequence, state = output
    return sequence * 0, state


model = Tagger()
model.lstm.register_forward_hook(ablate)  # <- TH316
loss = model(torch.ones(2, 5, 3)).square().sum()
loss.backward()
result = loss
