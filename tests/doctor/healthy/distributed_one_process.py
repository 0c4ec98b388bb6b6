"""DistributedDataParallel in one process (gloo), with hooks on the inner module and a communication hook."""

import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    try:
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
        model = DistributedDataParallel(net)
        model.register_comm_hook(None, fp16_compress_hook)
        means, norms = [], []
        net[1].register_forward_hook(lambda m, args, out: means.append(out.detach().mean()))
        for param in net.parameters():
            param.register_hook(lambda grad: norms.append(grad.norm()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for step in range(5):
            x, y = torch.randn(16, 8), torch.randint(3, (16,))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        del model
    finally:
        dist.destroy_process_group()
result = [losses, means, norms, [p.detach().clone() for p in net.parameters()]]
