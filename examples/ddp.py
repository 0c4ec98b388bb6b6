"""Clip all gradients together on two DDP ranks, and compare the result bit for bit with a handwritten clip.

`grad_final` is the gradient that the optimizer is about to use, after DDP has averaged it across ranks. Its norm
is therefore the norm for the whole batch, and is the same on every rank.

    torchrun --standalone --nproc-per-node 2 examples/ddp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tenterhook as th

torch.set_num_threads(1)
LIMIT, STEPS, BATCH = 0.5, 30, 32


def build():
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def backward(model, optimizer, step, rank):
    draw = torch.Generator().manual_seed(1000 * rank + step)  # every rank has its own data
    x = torch.randn(BATCH, 8, generator=draw)
    loss = (model(x) - 3 * x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    return loss


def train():
    rank, ranks = dist.get_rank(), dist.get_world_size()

    # By hand: every training loop needs an extra line between `backward()` and `step()`.
    by_hand, optimizer = build()
    norms = []
    for step in range(STEPS):
        backward(by_hand, optimizer, step, rank)
        norms.append(nn.utils.clip_grad_norm_(by_hand.parameters(), LIMIT).item())
        optimizer.step()

    # With a plan: hooks fire in the order of the plan, so `before` measures the gradients before the clip.
    plan = th.Plan([
        th.Hook("before", on="**", at="grad_final", do=th.stats()),
        th.Hook("clip", on="**", at="grad_final", do=th.clip_norm(LIMIT, over="hook")),
        th.Hook("after", on="**", at="grad_final", do=th.stats()),
    ])  # fmt: skip
    model, optimizer = build()
    with th.attach(model, plan, optimizer=optimizer) as rig:
        for step in range(STEPS):
            loss = backward(model, optimizer, step, rank)
            optimizer.step()
            before, after = (sum(t["norm"] ** 2 for t in rig.values(id).values()) ** 0.5 for id in ("before", "after"))
            if rank == 0 and step % 10 == 0:
                print(f"step {step:2}: loss {loss.item():5.2f}, norm {before:6.3f} -> {after:.3f}")
            assert abs(before - norms[step]) < 1e-5 * before

    same = all(torch.equal(p, q) for p, q in zip(model.parameters(), by_hand.parameters(), strict=True))
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_ranks = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(all_ranks, mine)
    if rank == 0:
        print(f"{ranks} ranks: the weights equal those of the handwritten loop bit for bit: {same}")
        print(rig.ledger["clip"])
    assert same and all(torch.equal(mine, other) for other in all_ranks)


def main():
    dist.init_process_group("gloo")
    train()  # frees its DDP modules: freeing one after the process group may deadlock in torch 2.13
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
