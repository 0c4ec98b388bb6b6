"""Firing rates of a network whose blocks are shared over depth: one record per use of a module."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(25)
torch.set_num_threads(1)


class SharedDepthNet(nn.Module):
    """One block applied several times, as in ALBERT or a recurrent network unrolled in depth."""

    def __init__(self, inputs=8, width=24, depth=4, classes=2):
        super().__init__()
        self.depth = depth
        self.stem = nn.Linear(inputs, width)
        self.fc = nn.Linear(width, width)
        self.act = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for _ in range(self.depth):
            x = x + self.act(self.fc(x))
        return self.head(x)


class UseRecorder:
    """Counts uses of a module within one pass of the model and keeps running sums per use."""

    def __init__(self, model, module):
        self.sums, self.rows = [], 0
        self.use = 0
        self.handles = [
            model.register_forward_pre_hook(self.begin),
            module.register_forward_hook(self.record),
            model.register_forward_hook(self.end),
        ]

    def begin(self, model, args):
        self.use = 0

    def record(self, module, args, output):
        firing = (output.detach() > 0).float().sum(dim=0)
        if self.use == len(self.sums):
            self.sums.append(torch.zeros_like(firing))
        self.sums[self.use] += firing
        self.use += 1

    def end(self, model, args, output):
        self.rows += output.shape[0]

    def rates(self):
        return [total / self.rows for total in self.sums]

    def remove(self):
        for handle in self.handles:
            handle.remove()
        self.handles.clear()


def make_data(n=500):
    x = torch.randn(n, 8)
    return x, ((x[:, 0] * x[:, 1] + x[:, 2]) > 0).long()


def main():
    model = SharedDepthNet()
    x, y = make_data()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(10):
        for batch in torch.randperm(len(x)).split(50):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"final loss {loss.item():.4f}")

    model.eval()
    recorder = UseRecorder(model, model.act)
    with torch.no_grad():
        for part in x.split(120):
            model(part)
    recorder.remove()

    print(f"rows {recorder.rows}, uses of the shared activation per pass {len(recorder.sums)}")
    for use, rate in enumerate(recorder.rates()):
        print(f"use {use}: mean firing rate {rate.mean().item():.3f}  silent units {int((rate == 0).sum())}")

    with torch.no_grad():
        h = model.stem(x)
        expected = []
        for _ in range(model.depth):
            a = F.relu(model.fc(h))
            expected.append((a > 0).float().mean(dim=0))
            h = h + a
    agree = all(torch.allclose(a, b, atol=1e-5) for a, b in zip(expected, recorder.rates()))
    print("agrees with a manual computation:", agree)


if __name__ == "__main__":
    main()
