"""Activation patching over a recurrent model: record once, take the recorder off, patch single time steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Parity(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.cell = nn.LSTMCell(1, hidden)
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t:t + 1], (h, c))
        return self.out(h)


@torch.no_grad()
def record(model, x):
    """All states in order of time: the cell fires once per step, so a list is the right container."""
    states = []
    with model.cell.register_forward_hook(lambda m, a, out: states.append(tuple(s.clone() for s in out))):
        model(x)
    return states


class PatchStep:
    def __init__(self, cell, states, step):
        self.states, self.step, self.t = states, step, 0
        self.handle = cell.register_forward_hook(self.hook)

    def hook(self, module, args, output):
        t, self.t = self.t, self.t + 1
        if t == self.step:
            return self.states[t]
        return None  # all other steps go on as they are

    def remove(self):
        self.handle.remove()


@torch.no_grad()
def margin(model, x, y):
    out = model(x)
    return (out.gather(1, y[:, None]) - out.gather(1, 1 - y[:, None])).mean().item()


def main():
    torch.manual_seed(0)
    clean = (torch.rand(200, 6) < 0.5).float()
    y = (clean[:, :3].sum(1) > 1.5).long()
    model = Parity()
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    for _ in range(80):
        loss = F.cross_entropy(model(clean), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    corrupted = clean.clone()
    corrupted[:, 1] = 1 - corrupted[:, 1]
    states = record(model, clean)
    good, bad = margin(model, clean, y), margin(model, corrupted, y)
    print(f"loss {loss.item():.4f} margin clean {good:.3f} corrupted {bad:.3f} recorded steps {len(states)}")
    for t in range(6):
        patch = PatchStep(model.cell, states, t)
        value = margin(model, corrupted, y)
        patch.remove()
        print(f"  patch step {t}: restored {100 * (value - bad) / (good - bad):6.1f}%")
    print("hooks left:", len(model.cell._forward_hooks))


if __name__ == "__main__":
    main()
