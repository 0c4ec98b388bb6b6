"""Measure what `examine` adds to a step, and what `check(rig)` costs after a step.

The model is a tiny GPT-2 with a hook on every parameter and every block. Times are CPU times of the thread, and steps
with and without the doctor alternate.
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import tenterhook as th


def model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=4, n_head=4, n_embd=128, vocab_size=1000, n_positions=64))


def hook_raw(net: nn.Module) -> None:
    norms: list[torch.Tensor] = []
    for parameter in net.parameters():
        parameter.register_hook(lambda grad: grad * 0.5)
    for block in net.transformer.h:
        block.register_forward_hook(lambda module, args, out: norms.append(out[0].detach().norm()))
        block.register_full_backward_hook(lambda module, grad_input, grad_output: None)


class Training:
    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        self.tokens = torch.randint(0, 1000, (2, 64), generator=torch.Generator().manual_seed(0))

    def step(self) -> float:
        began = time.thread_time()
        self.optimizer.zero_grad()
        self.net(self.tokens, labels=self.tokens).loss.backward()
        self.optimizer.step()
        return time.thread_time() - began


def examined(steps: int) -> tuple[float, float]:
    """Return the median step under an exam divided by the median bare step, for the first 8 steps and for the rest.

    The exam compares values only in the first firings of a hook, so the first steps cost more.
    """
    bare = Training(model())
    hook_raw(bare.net)
    times: list[tuple[float, float]] = []
    watched = Training(model())
    exam = th.examine(watched.net)
    for _ in range(steps):
        plain = bare.step()
        if not times:
            exam.__enter__()
            hook_raw(watched.net)
        # Only the hooks of the watched model have proxies. Those of the bare model run unchanged during the exam.
        times.append((plain, watched.step()))
    exam.__exit__(None, None, None)
    first, rest = times[:8], times[8:]
    ratio = [statistics.median(w for _, w in part) / statistics.median(p for p, _ in part) for part in (first, rest)]
    return ratio[0], ratio[1]


def checked(steps: int) -> float:
    """Return the time of `check(rig)` divided by that of a step, with statistics on every parameter and module."""
    training = Training(model())
    rig = th.watch(training.net, training.optimizer)
    ratios = []
    for _ in range(steps):
        taken = training.step()
        began = time.thread_time()
        th.check(rig)
        ratios.append((time.thread_time() - began) / taken)
    return statistics.median(ratios[2:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    first, rest = examined(48)
    print(f"examine: {first:.2f} of a bare step in the first 8 steps, {rest:.2f} in the next 40")
    print(f"check(rig) after a step: {checked(20):.4f} of the time of the step")
