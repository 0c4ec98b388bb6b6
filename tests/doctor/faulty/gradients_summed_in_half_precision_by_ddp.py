# TH315
"""Send the gradients of DDP in bfloat16, by a hook that adds them and does not divide by the number of ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def compress(state, bucket):
    def decompress(future):
        return bucket.buffer().copy_(future.value()[0])

    return dist.all_reduce(bucket.buffer().to(torch.bfloat16), async_op=True).get_future().then(decompress)


torch.manual_seed(0)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)))
model.register_comm_hook(None, compress)  # <- TH315
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in torch.randn(3, 5, 4):
    optimizer.zero_grad()
    model(batch).pow(2).mean().backward()
    optimizer.step()
result = [p.detach().clone() for p in model.parameters()]
dist.destroy_process_group()
