"""FSDP2 on the CPU in one process: hooks are put on after sharding, where they fire."""

import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        norms, means = [], []
        for param in model.parameters():
            param.register_post_accumulate_grad_hook(lambda p: norms.append(p.grad.full_tensor().norm()))
        model[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for step in range(5):
            x, y = torch.randn(16, 8), torch.randint(3, (16,))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        weights = [p.full_tensor().detach().clone() for p in model.parameters()]
    finally:
        dist.destroy_process_group()
assert len(norms) == 20
result = [losses, norms, means, weights]
