import argparse

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self, dim=20, bottleneck=4):
        super().__init__()
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.up(torch.relu(self.down(x)) + 0.1 * self.down(x)) * self.scale


def batches(data, batch_size, generator):
    while True:
        order = torch.randperm(len(data), generator=generator)
        for chunk in order.split(batch_size):
            yield data[chunk]


def run(args):
    gen = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)

    basis = torch.randn(4, 20, generator=gen)
    data = torch.randn(256, 4, generator=gen) @ basis + 0.05 * torch.randn(256, 20, generator=gen)

    model = Autoencoder()
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum, nesterov=True)
    stream = batches(data, args.batch_size, gen)

    for step in range(args.steps):
        x = next(stream)

        def closure():
            opt.zero_grad()
            loss = F.mse_loss(model(x), x)
            penalty = args.l1 * sum(p.abs().sum() for p in model.parameters())
            total = loss + penalty
            total.backward()
            return total

        loss = opt.step(closure)
        print(f"step {step} loss {loss.item()!r}")

    return model


def main():
    ap = argparse.ArgumentParser(description="autoencoder on low-rank data")
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--momentum", type=float, default=0.9)
    ap.add_argument("--l1", type=float, default=1e-4)
    ap.add_argument("--seed", type=int, default=17)
    model = run(ap.parse_args())
    print(f"checksum {sum(p.detach().double().sum().item() for p in model.parameters())!r}")


if __name__ == "__main__":
    main()
