"""ActNorm with data-dependent initialisation, used with a small trainer."""
import torch
from torch import nn

torch.set_num_threads(1)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self._init = self.register_forward_pre_hook(self._initialise)

    @staticmethod
    def _initialise(self, args):
        x = args[0].detach()
        self.shift.data = -x.mean(0)
        self.log_scale.data = -x.std(0).clamp(min=0.05).log()
        self._init.remove()

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp()


class Trainer:
    def __init__(self, lr=1e-3, summary=True):
        self.lr, self.summary = lr, summary

    def print_summary(self, model, dim):
        with torch.no_grad():
            out = model(torch.zeros(2, dim))
        n = sum(p.numel() for p in model.parameters())
        print(f"  summary: {n} parameters, input {dim}, output {out.shape[1]}")

    def fit(self, model, batches):
        if self.summary:
            self.print_summary(model, batches[0][0].shape[1])
        opt = torch.optim.SGD(model.parameters(), lr=self.lr)
        for step, (x, y) in enumerate(batches):
            loss = (model(x) - y).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step in (0, len(batches) - 1):
                with torch.no_grad():
                    h = model[:2](x)
                print(f"  step {step:3d} loss {loss.item():9.3f}, ActNorm output mean {h.mean():8.3f} std {h.std():7.3f}")


gen = torch.Generator().manual_seed(0)
data = [(torch.randn(64, 8, generator=gen) * 4 + 10, torch.randn(64, 1, generator=gen)) for _ in range(60)]
for summary in (False, True):
    torch.manual_seed(0)
    print("summary =", summary)
    Trainer(summary=summary).fit(nn.Sequential(nn.Linear(8, 16), ActNorm(16), nn.Tanh(), nn.Linear(16, 1)), data)
