"""DDP with a top-k gradient exchange that keeps what was not sent."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class TopKState:
    def __init__(self, group, share, warmup=2):
        self.group = group
        self.share = share
        self.warmup = warmup  # buckets are laid out anew after the first step
        self.step = 0
        self.residual = {}
        self.sent = 0
        self.total = 0


def average(tensor, group):
    tensor /= dist.get_world_size(group)
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def topk_exchange(state, bucket):
    grad = bucket.buffer()
    index = bucket.index()
    plain = state.step < state.warmup
    state.step += bucket.is_last()
    if plain:
        return average(grad, state.group)
    if index in state.residual:
        grad = grad + state.residual[index]
    keep = max(1, int(state.share * grad.numel()))
    chosen = grad.abs().topk(keep).indices
    sparse = torch.zeros_like(grad)
    sparse[chosen] = grad[chosen]
    state.residual[index] = grad - sparse
    state.sent += keep
    state.total += grad.numel()
    return average(sparse, state.group)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 48), nn.GELU())
        self.head = nn.Linear(48, 3)

    def forward(self, x):
        return self.head(self.body(x))


def train(model, x, y, steps=40):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/init",
                                rank=0, world_size=1)
        centers = torch.randn(3, 16)
        y = torch.randint(0, 3, (300,))
        x = centers[y] + torch.randn(300, 16)
        model = DistributedDataParallel(Net())
        state = TopKState(dist.group.WORLD, share=0.1)
        model.register_comm_hook(state, topk_exchange)
        loss = train(model, x, y)
        with torch.no_grad():
            accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
        print(f"loss {loss:.3f}, accuracy {accuracy:.3f}")
        print(f"share of the gradient exchanged: {state.sent / state.total:.2f}")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
