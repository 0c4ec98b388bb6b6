import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = 2


class TextScorer(nn.Module):
    def __init__(self, vocab=50, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.mixer = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.head = nn.Linear(dim, 2)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x = x + self.mixer(x)
        return self.head(x.mean(dim=1))


class LowMemoryTrainer:
    """One small optimizer per parameter; each gradient is freed once it has been used."""

    def __init__(self, model, lr):
        self.model = model
        self.optimizers = {p: torch.optim.SGD([p], lr=lr) for p in model.parameters()}

    def apply_update(self, param):
        self.optimizers[param].step()
        self.optimizers[param].zero_grad()

    def train_step(self, tokens, labels):
        loss = nn.functional.cross_entropy(self.model(tokens), labels)
        loss.backward()
        for param in self.model.parameters():
            self.apply_update(param)
        return loss.item()


def largest_difference(model):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    gathered = [torch.empty_like(flat) for _ in range(WORLD_SIZE)]
    dist.all_gather(gathered, flat)
    return (gathered[0] - gathered[1]).abs().max().item()


def worker(rank, init_file):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{init_file}", rank=rank, world_size=WORLD_SIZE
    )
    torch.manual_seed(0)
    tokens = torch.randint(0, 50, (64, 10))
    labels = (tokens < 25).float().mean(dim=1).gt(0.5).long()
    local_tokens, local_labels = tokens[rank::WORLD_SIZE], labels[rank::WORLD_SIZE]

    model = DDP(TextScorer())
    trainer = LowMemoryTrainer(model, lr=0.5)
    for epoch in range(4):
        for start in range(0, len(local_tokens), 8):
            loss = trainer.train_step(
                local_tokens[start : start + 8], local_labels[start : start + 8]
            )
        difference = largest_difference(model)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, weights differ between ranks by {difference:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as folder:
        init_file = os.path.join(folder, "rendezvous")
        mp.start_processes(worker, args=(init_file,), nprocs=WORLD_SIZE, start_method="fork")


if __name__ == "__main__":
    main()
