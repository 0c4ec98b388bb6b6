# torchrun --standalone --nproc-per-node 2 fsdp2.py
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
VOCAB, DIM, SEQ = 50, 32, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.norm2 = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Block() for _ in range(2)])
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, x):
        h = self.tok(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=3e-3)

    torch.manual_seed(dist.get_rank() + 1)
    for step in range(30):
        start = torch.randint(0, VOCAB, (8, 1))
        seq = (start + torch.arange(SEQ + 1)) % VOCAB
        loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
        avg = loss.detach().clone()
        dist.all_reduce(avg)
        if dist.get_rank() == 0:
            print(f"step {step} loss {(avg / dist.get_world_size()).item()!r}", flush=True)

    total = sum(p.full_tensor().double().sum().item() for p in model.parameters())
    if dist.get_rank() == 0:
        print(f"checksum {total!r}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
