"""Calibration run for 8-bit inference: observe activation ranges on two processes."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 32)
        self.act = nn.GELU()
        self.down = nn.Linear(32, 4)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class RangeObserver:
    def __init__(self, module):
        self.amax = torch.zeros(1)
        self.rows = torch.zeros(1)
        module.register_forward_hook(self.observe)

    def observe(self, module, args, out):
        self.amax = torch.maximum(self.amax, out.detach().abs().max().reshape(1))
        self.rows += out.shape[0]


def dataset():
    g = torch.Generator().manual_seed(5)
    x = torch.randn(64, 4, generator=g)
    x[1::2] *= 4.0            # every other recording is louder
    return TensorDataset(x)


def calibrate(rank, world, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(MLP()).eval()
    observers = {n: RangeObserver(m) for n, m in model.module.named_children()}

    # DDP takes care of the synchronisation of everything below `model`
    sampler = DistributedSampler(dataset(), num_replicas=world, rank=rank, shuffle=False)
    with torch.no_grad():
        for (x,) in DataLoader(dataset(), batch_size=8, sampler=sampler):
            model(x)

    if rank == 0:
        full = dataset().tensors[0]
        for name, obs in observers.items():
            print(f"{name:5s} range +-{obs.amax.item():.3f} from {int(obs.rows.item())} of {len(full)} rows")
        with torch.no_grad():
            up = model.module.up
            hidden = nn.functional.linear(full, up.weight, up.bias)
        limit = observers["up"].amax.item()
        print("values outside the int8 range:", int((hidden.abs() > limit + 1e-5).sum()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(calibrate, args=(2, os.path.join(folder, "store")), nprocs=2, start_method="fork")
