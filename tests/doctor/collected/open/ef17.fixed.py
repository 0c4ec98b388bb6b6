"""Firing rates of hidden units of a bfloat16 model over a long stream of inputs."""
import torch
import torch.nn as nn


class Backbone(nn.Module):
    def __init__(self, dim=16, width=40):
        super().__init__()
        self.fc1 = nn.Linear(dim, width)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(width, width)
        self.relu2 = nn.ReLU()
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.relu2(self.fc2(self.relu1(self.fc1(x)))))


class FiringRates:
    def __init__(self, model):
        self.counts = {}
        self.seen = {}
        self.handles = []
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):
                self.handles.append(module.register_forward_hook(self.make(name)))

    def make(self, name):
        def hook(module, args, out):
            out = out.detach()
            if name not in self.counts:
                self.counts[name] = torch.zeros_like(out[0], dtype=torch.float32)
                self.seen[name] = 0
            # how often was each unit above zero?
            self.counts[name] += (out > 0).sum(0)
            self.seen[name] += out.shape[0]
        return hook

    def rates(self, name):
        return self.counts[name].float() / self.seen[name]

    def close(self):
        for h in self.handles:
            h.remove()


def stream(total, batch, gen):
    for _ in range(total // batch):
        yield torch.randn(batch, 16, generator=gen).bfloat16()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)
    model = Backbone().bfloat16().eval()
    log = FiringRates(model)
    with torch.no_grad():
        for x in stream(total=6000, batch=2, gen=gen):
            model(x)
    for name in log.counts:
        r = log.rates(name)
        print(f"{name}: mean rate {r.mean():.3f} max rate {r.max():.3f} "
              f"units that fire for most inputs: {int((r > 0.5).sum())} "
              f"rarely used units: {int((r < 0.1).sum())} of {r.numel()}")
    log.close()


if __name__ == "__main__":
    main()
