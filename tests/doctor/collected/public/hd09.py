"""Data parallel training on replicas in threads; activations kept for backward are compressed."""
import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks


class ActivationCompression:
    def __init__(self, models):
        self.lock = threading.Lock()
        self.weights = {p.untyped_storage().data_ptr() for m in models for p in m.parameters()}
        self.tensors = 0
        self.saved_bytes = 0

    def pack(self, tensor):
        if tensor.dtype != torch.float32 or tensor.untyped_storage().data_ptr() in self.weights:
            return tensor
        packed = tensor.to(torch.bfloat16)
        with self.lock:
            self.tensors += 1
            self.saved_bytes += 2 * tensor.numel()
        return packed

    def unpack(self, packed):
        return packed.float() if packed.dtype == torch.bfloat16 else packed

    def enable(self):
        return saved_tensors_hooks(self.pack, self.unpack)


class PriceNet(nn.Module):
    def __init__(self, regions=30, numeric=6, width=64):
        super().__init__()
        self.region = nn.Embedding(regions, 8)
        self.body = nn.Sequential(
            nn.Linear(8 + numeric, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )

    def forward(self, region, numeric):
        return self.body(torch.cat([self.region(region), numeric], 1)).squeeze(-1)


class ThreadedTrainer:
    def __init__(self, model, workers=2):
        self.model = model
        self.replicas = [copy.deepcopy(model) for _ in range(workers)]
        self.pool = ThreadPoolExecutor(workers)
        self.compression = ActivationCompression(self.replicas)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def work(self, replica, region, numeric, price):
        replica.load_state_dict(self.model.state_dict())
        replica.zero_grad()
        loss = F.mse_loss(replica(region, numeric), price)
        loss.backward()
        return loss.item()

    def step(self, region, numeric, price):
        count = len(self.replicas)
        shards = zip(self.replicas, region.chunk(count), numeric.chunk(count), price.chunk(count))
        with self.compression.enable():
            losses = list(self.pool.map(lambda shard: self.work(*shard), shards))
        for param, *copies in zip(self.model.parameters(), *(r.parameters() for r in self.replicas)):
            param.grad = torch.stack([c.grad for c in copies]).mean(0)
        self.optimizer.step()
        return sum(losses) / count


def make_houses(count):
    region = torch.randint(0, 30, (count,))
    numeric = torch.randn(count, 6)
    price = numeric[:, 0] + 0.5 * numeric[:, 1] * numeric[:, 2] + 0.05 * region
    return region, numeric, price


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    region, numeric, price = make_houses(1600)
    trainer = ThreadedTrainer(PriceNet())
    for epoch in range(4):
        batches = torch.randperm(len(price)).split(160)
        losses = [trainer.step(region[b], numeric[b], price[b]) for b in batches]
        print(f"epoch {epoch}: mse {sum(losses) / len(losses):.3f}")
    trainer.pool.shutdown()
    compression = trainer.compression
    print(f"compressed {compression.tensors} tensors, {compression.saved_bytes / 1024:.0f} KiB less to keep")


if __name__ == "__main__":
    main()
