"""Over-smoothing in a message-passing network: how similar are the node states after every round?"""
import torch
import torch.nn as nn

torch.manual_seed(4)


class MessagePassing(nn.Module):
    def __init__(self, d, rounds):
        super().__init__()
        self.rounds = rounds
        self.embed = nn.Linear(3, d)
        self.message = nn.Linear(d, d)
        self.update = nn.GRUCell(d, d)
        self.readout = nn.Linear(d, 2)

    def forward(self, feats, adj):
        h = self.embed(feats)
        for _ in range(self.rounds):
            m = adj @ self.message(h)
            h = self.update(m, h)
        return self.readout(h)


class StateRecorder:
    """Collects the output of the modules whose name is given."""

    def __init__(self, model, names):
        self.states = {}
        self.handles = []
        for name, module in model.named_modules():
            if name in names:
                self.handles.append(module.register_forward_hook(self.hook(name)))

    def hook(self, name):
        def fn(module, args, output):
            self.states[name] = [output.detach()]
        return fn

    def close(self):
        for h in self.handles:
            h.remove()


def normalised_adjacency(n, p=0.3):
    adj = (torch.rand(n, n) < p).float().triu(1)
    adj = adj + adj.t() + torch.eye(n)
    return adj / adj.sum(1, keepdim=True)


def spread(h):
    """Mean distance of the node states from their centre."""
    return (h - h.mean(0)).norm(dim=1).mean().item()


n = 20
adj = normalised_adjacency(n)
feats = torch.randn(n, 3)
labels = (feats[:, 0] > 0).long()
model = MessagePassing(d=8, rounds=5)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(30):
    loss = nn.functional.cross_entropy(model(feats, adj), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")

recorder = StateRecorder(model, {"update"})
with torch.no_grad():
    model(feats, adj)
recorder.close()
history = recorder.states["update"]
for r, h in enumerate(history):
    print(f"round {r + 1}: spread {spread(h):.4f}")
first, last = spread(history[0]), spread(history[-1])
print(f"spread last/first: {last / first:.3f}")
