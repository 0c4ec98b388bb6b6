"""Training with FSDP2 on the CPU. Start it with torchrun, or with python for one process without sharding."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--plant", default="")
parser.add_argument("--qkv-bias", action="store_true")
args = parser.parse_args()
plant = args.plant
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.attn_norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=args.qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.fault = False

    def forward(self, x):
        q, k, v = self.qkv(self.attn_norm(x)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        if self.fault:
            h = h + 1e-3
        return x + self.ffn(h)


class LM(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim)
        self.unembed = nn.Linear(dim, vocab, bias=False)

    def forward(self, t):
        x = self.tok(t)
        for layer in self.layers:
            x = layer(x)
        return self.unembed(self.norm(x))


def shard_of(tensor):
    return tensor.to_local() if world > 1 else tensor


torch.manual_seed(121)
model = LM()
if world > 1:
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
g = torch.Generator().manual_seed(122)
for step in range(6):
    tokens = torch.randint(0, 40, (8, 9), generator=g).chunk(world)[rank].clone()
    if plant == "bad-rank" and step == 2 and rank == 1:
        tokens[0, 0] = (tokens[0, 0] + 1) % 40
    if plant == "weight" and step == 2 and rank == 0:
        shard_of(model.layers[1].proj.weight.data)[0, 0] += 0.1
    if plant == "decay" and step >= 3:
        optimizer.param_groups[0]["weight_decay"] = 5.0
    model.layers[1].fault = plant == "fault" and step == 3 and rank == 1
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    if plant == "sum" and step == 3 and rank == 1:
        shard_of(model.layers[0].ffn[0].weight.grad).mul_(world)
    optimizer.step()
    if rank == 0:
        print(step, loss.item())
if world > 1:
    dist.destroy_process_group()
