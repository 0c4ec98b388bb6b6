"""Collect LSTM states per sequence with a hook (probing)."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, vocab=20, d=8, h=10):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.LSTM(d, h, batch_first=True)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = self.rnn(packed)
        return h[-1]


class StateProbe:
    def __init__(self, rnn):
        self.flat = []
        rnn.register_forward_hook(self.hook)

    def hook(self, module, args, output):
        packed, _ = output
        self.flat.append(packed.data.detach())

    def per_sequence(self, lengths):
        return list(torch.cat(self.flat).split(lengths.tolist()))


model = Encoder().eval()
probe = StateProbe(model.rnn)
seqs = [torch.randint(1, 20, (n,)) for n in (4, 7, 2, 5)]
lengths = torch.tensor([len(s) for s in seqs])
ids = pad_sequence(seqs, batch_first=True)
with torch.no_grad():
    last = model(ids, lengths)

states = probe.per_sequence(lengths)
print("shapes:", [tuple(s.shape) for s in states])
for i, s in enumerate(states):
    print(f"sequence {i}: last collected state vs. final hidden state, max difference {(s[-1] - last[i]).abs().max():.4f}")

pooled = torch.stack([s.mean(0) for s in states])
probe.flat.clear()
with torch.no_grad():
    model(ids[1:2, :7], lengths[1:2])
alone = probe.per_sequence(lengths[1:2])[0].mean(0)
print(f"mean state of sequence 1, in the batch vs. alone: difference {(pooled[1] - alone).abs().max():.4f}")
