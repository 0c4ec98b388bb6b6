"""A character LSTM with truncated backpropagation, carried hidden state and a clipping limit that is often active."""

import hashlib

import torch
from torch import nn


def digest(*modules):
    """Return a short hash of all weights and buffers."""
    data = b"".join(t.detach().double().numpy().tobytes() for m in modules for t in m.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:16]


torch.set_num_threads(1)
torch.manual_seed(24)
pattern = "to be or not to be that is the question whether it is nobler in the mind to suffer the slings "
chars = sorted(set(pattern))
stream = torch.tensor([chars.index(c) for c in pattern * 120])
rows = stream[: len(stream) // 8 * 8].view(8, -1)


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(chars), 24)
        self.rnn = nn.LSTM(24, 64, num_layers=2, batch_first=True)
        self.out = nn.Linear(64, len(chars))

    def forward(self, x, state=None):
        h, state = self.rnn(self.emb(x), state)
        return self.out(h), state


model = CharLSTM()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
losses, clipped, step = [], 0, 0
while step < 500:
    state = None
    for pos in range(0, rows.shape[1] - 21, 20):
        if state is not None:
            state = tuple(s.detach() for s in state)
        logits, state = model(rows[:, pos : pos + 20], state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, pos + 1 : pos + 21].flatten())
        opt.zero_grad()
        loss.backward()
        clipped += bool(nn.utils.clip_grad_norm_(model.parameters(), 0.4) > 0.4)
        opt.step()
        losses.append(loss.item())
        step += 1
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, clipped {clipped} of {step}")
assert losses[-1] < 0.3 * losses[0]
print("digest", digest(model))
