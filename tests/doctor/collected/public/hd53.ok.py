"""Dead hidden units of a GRU on sequences of different length (notebook export)."""
# %%
import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(0)
torch.set_num_threads(1)


# %% model
class EventModel(nn.Module):
    def __init__(self, events=50, width=16, hidden=24):
        super().__init__()
        self.events = nn.Embedding(events, width, padding_idx=0)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 3)

    def forward(self, events, lengths):
        packed = pack_padded_sequence(self.events(events), lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)
        return self.head(last[-1])


# %% data
def make_logs(count, longest=20):
    lengths = torch.randint(4, longest + 1, (count,))
    labels = torch.randint(0, 3, (count,))
    events = torch.randint(1, 50, (count, longest))
    marked = torch.rand(count, longest) < 0.3
    events = torch.where(marked, 10 * labels[:, None] + 5, events)
    return events.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths, labels


logs, lengths, labels = make_logs(900)
model = EventModel()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)


def run_epoch():
    losses = []
    for rows in torch.randperm(len(logs)).split(60):
        loss = F.cross_entropy(model(logs[rows], lengths[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


# %% collector: counts real time steps only, padding never enters a packed sequence
class UnitActivity:
    def __init__(self, units):
        self.steps = 0
        self.silent = torch.zeros(units)

    def __call__(self, module, inputs, output):
        packed, _ = output
        states = packed.data.detach()
        self.steps += len(states)
        self.silent += (states.abs() < 0.05).sum(0)

    def share(self):
        return (self.silent / self.steps).mean().item()


# %% train and watch
if "handle" in globals():
    handle.remove()
activity = UnitActivity(24)
handle = model.gru.register_forward_hook(activity)
loss = run_epoch()
print(f"loss {loss:.4f}: {activity.steps} steps, nearly silent {activity.share():.3f}")

# %% train and watch (run once more)
if "handle" in globals():
    handle.remove()
activity = UnitActivity(24)
handle = model.gru.register_forward_hook(activity)
loss = run_epoch()
print(f"loss {loss:.4f}: {activity.steps} steps, nearly silent {activity.share():.3f}")

# %% train and watch (and a third time)
if "handle" in globals():
    handle.remove()
activity = UnitActivity(24)
handle = model.gru.register_forward_hook(activity)
loss = run_epoch()
print(f"loss {loss:.4f}: {activity.steps} steps, nearly silent {activity.share():.3f}")

# %% evaluation without the collector
handle.remove()
test_logs, test_lengths, test_labels = make_logs(300)
with torch.no_grad():
    accuracy = (model(test_logs, test_lengths).argmax(1) == test_labels).float().mean().item()
print(f"real steps per epoch {int(lengths.sum())}, test accuracy {accuracy:.3f}")
