"""
Minimal multi-process training.

    torchrun --standalone --nproc-per-node 2 ddp.py
"""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)


class SineDataset(Dataset):
    def __init__(self, size, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.rand(size, 6, generator=gen) * 2 - 1
        self.y = torch.sin(2.0 * self.x).sum(dim=1, keepdim=True)

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, model, train_data, optimizer, rank, world_size):
        self.rank = rank
        self.world_size = world_size
        self.train_data = train_data
        self.optimizer = optimizer
        self.model = DDP(model)
        self.loss_fn = nn.MSELoss()
        self.step = 0

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

        reduced = loss.detach().clone()
        dist.all_reduce(reduced, op=dist.ReduceOp.SUM)
        reduced /= self.world_size
        if self.rank == 0:
            print(f"step {self.step} loss {reduced.item()!r}", flush=True)
        self.step += 1

    def train(self, max_epochs):
        self.model.train()
        for epoch in range(max_epochs):
            self.train_data.sampler.set_epoch(epoch)
            for source, targets in self.train_data:
                self._run_batch(source, targets)


def main(epochs=4, batch_size=16):
    dist.init_process_group(backend="gloo")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])

    torch.manual_seed(21)
    dataset = SineDataset(256, seed=5)
    sampler = DistributedSampler(dataset, shuffle=True, seed=5)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    trainer = Trainer(model, loader, optimizer, rank, world_size)
    trainer.train(epochs)

    dist.barrier()
    if rank == 0:
        total = sum(p.detach().double().sum().item() for p in model.parameters() if p.requires_grad)
        print(f"checksum {total!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
