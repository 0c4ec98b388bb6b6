"""Probing a frozen BiLSTM: hidden states are taken from the encoder while it
classifies sentences, and a linear probe predicts the tag of every word."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
torch.set_num_threads(1)

VOCAB, TAGS, EMB, HID, PAD = 40, 4, 24, 64, 0


class SentenceClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMB, padding_idx=PAD)
        self.encoder = nn.LSTM(EMB, HID, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * HID, 2)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        packed, _ = self.encoder(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True)
        total = states.sum(1) / lengths[:, None]
        return self.head(total)


def corpus(gen, size):
    lengths = torch.randint(3, 12, (size,), generator=gen)
    ids = torch.randint(1, VOCAB, (size, 12), generator=gen)
    ids[torch.arange(12)[None] >= lengths[:, None]] = PAD
    return ids[:, : lengths.max()], lengths


def tags_of(ids):
    return ids % TAGS


class StateRecorder:
    """Stores one row per word from the output of the encoder."""

    def __init__(self, encoder):
        self.rows = None
        self.handle = encoder.register_forward_hook(self.record)

    def record(self, module, args, output):
        sequence, _ = output
        states, lengths = pad_packed_sequence(sequence, batch_first=True)
        self.rows = states[torch.arange(states.shape[1])[None] < lengths[:, None]].detach()


gen = torch.Generator().manual_seed(1)
model = SentenceClassifier()
optim = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(60):
    ids, lengths = corpus(gen, 32)
    labels = (tags_of(ids).masked_fill(ids == PAD, 0).sum(1) / lengths > 1.5).long()
    loss = F.cross_entropy(model(ids, lengths), labels)
    optim.zero_grad()
    loss.backward()
    optim.step()
print(f"sentence loss {loss.item():.3f}")

model.eval().requires_grad_(False)
recorder = StateRecorder(model.encoder)


def word_dataset(size):
    ids, lengths = corpus(gen, size)
    model(ids, lengths)
    return recorder.rows, tags_of(ids)[ids != PAD]


probe = nn.Linear(2 * HID, TAGS)
optim = torch.optim.AdamW(probe.parameters(), lr=1e-2)
for step in range(200):
    rows, tags = word_dataset(48)
    loss = F.cross_entropy(probe(rows), tags)
    optim.zero_grad()
    loss.backward()
    optim.step()

rows, tags = word_dataset(400)
predicted = probe(rows).argmax(-1)
print(f"words in the held-out set: {len(rows)}, tags: {len(tags)}")
print(f"probe loss {loss.item():.3f}, chance {1 / TAGS:.2f}")
print(f"held-out tag accuracy {(predicted == tags).float().mean():.3f}")
