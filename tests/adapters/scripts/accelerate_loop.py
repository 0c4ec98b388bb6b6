#!/usr/bin/env python
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class SmallCNN(nn.Module):
    def __init__(self, width=8, num_classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, stride=2)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.fc = nn.Linear(2 * width, num_classes)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.norm(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


def make_dataset(n, seed):
    """Stripes in one of four directions plus noise."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    patterns = torch.stack([torch.sin(xx), torch.sin(yy), torch.sin(xx + yy), torch.sin(xx - yy)])
    labels = torch.randint(0, 4, (n,), generator=g)
    images = patterns[labels].unsqueeze(1) + 0.3 * torch.randn(n, 1, 12, 12, generator=g)
    return TensorDataset(images, labels)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--num_epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.gradient_accumulation_steps)
    set_seed(args.seed)

    model = SmallCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = DataLoader(make_dataset(256, args.seed), batch_size=args.batch_size, shuffle=True)
    total_steps = args.num_epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=total_steps)

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    completed_steps = 0
    running = 0.0
    for epoch in range(args.num_epochs):
        model.train()
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(images), labels)
                running += loss.item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                completed_steps += 1
                accelerator.print(f"epoch {epoch} step {completed_steps} loss {running!r}")
                running = 0.0

    unwrapped = accelerator.unwrap_model(model)
    total = sum(p.detach().double().sum().item() for p in unwrapped.parameters() if p.requires_grad)
    accelerator.print(f"checksum {total!r}")


if __name__ == "__main__":
    main()
