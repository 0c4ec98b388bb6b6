"""Optimizers that run inside the backward pass, with gradient accumulation and a schedule.

A parameter is updated when the last micro-batch of a group has contributed to its gradient.
The result is compared with an ordinary training loop.
"""
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.set_num_threads(1)
MICRO, STEPS, LR = 4, 25, 1e-2


def factor(step):
    return min(1.0, (step + 1) / 5) * max(0.0, 1 - step / STEPS)


def build():
    torch.manual_seed(0)
    emb = nn.Embedding(20, 16)
    head = nn.Linear(16, 20, bias=False)
    head.weight = emb.weight
    return nn.Sequential(emb, nn.Linear(16, 16), nn.Tanh(), head)


def micro_batches():
    g = torch.Generator().manual_seed(4)
    for _ in range(STEPS):
        group = []
        for _ in range(MICRO):
            a = torch.randint(0, 20, (32,), generator=g)
            group.append((a, (3 * a + 1) % 20))
        yield group


def group_loss(model, a, b):
    return nn.functional.cross_entropy(model(a), b) / MICRO


class InBackward:
    def __init__(self, model):
        self.arrived, self.opts, self.scheds = {}, {}, []
        for p in model.parameters():
            opt = torch.optim.Adam([p], lr=LR)
            self.opts[p], self.arrived[p] = opt, 0
            self.scheds.append(LambdaLR(opt, factor))
            p.register_post_accumulate_grad_hook(self.on_grad)

    def on_grad(self, p):
        self.arrived[p] += 1
        if self.arrived[p] % MICRO == 0:
            self.opts[p].step()
            self.opts[p].zero_grad(set_to_none=True)

    def end_of_group(self):
        for s in self.scheds:
            s.step()


def train_in_backward():
    model = build()
    updates = InBackward(model)
    for group in micro_batches():
        for a, b in group:
            loss = group_loss(model, a, b)
            loss.backward()
        updates.end_of_group()
    return model, loss.item() * MICRO


def train_ordinary():
    model = build()
    opt = torch.optim.Adam(model.parameters(), lr=LR)
    sched = LambdaLR(opt, factor)
    for group in micro_batches():
        opt.zero_grad()
        for a, b in group:
            loss = group_loss(model, a, b)
            loss.backward()
        opt.step()
        sched.step()
    return model, loss.item() * MICRO


def main():
    a, loss_a = train_in_backward()
    b, loss_b = train_ordinary()
    gap = max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters()))
    print(f"loss in backward {loss_a:.5f}   ordinary {loss_b:.5f}")
    print(f"largest weight difference {gap:.2e}")
    assert gap < 1e-5


if __name__ == "__main__":
    main()
