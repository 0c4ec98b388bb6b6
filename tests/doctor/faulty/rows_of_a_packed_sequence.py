# TH543
"""Read the rows of a packed sequence as if they were ordered by sequence."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

torch.manual_seed(0)
gru = nn.GRU(3, 4)
states = []
gru.register_forward_hook(lambda module, args, output: states.append(output[0].data.clone()))  # <- TH543
gru(pack_sequence([torch.randn(4, 3), torch.randn(2, 3)]))
first = states[0][:4]
result = first
