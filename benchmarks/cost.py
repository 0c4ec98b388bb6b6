"""Measure what a site whose action does nothing, and a plan with no hook due, add to a step.

python benchmarks/cost.py                 # CPU time of the thread, the best of several alternating runs
python benchmarks/cost.py --instructions  # the cost of an idle plan in instructions, counted by valgrind (minutes)
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import tenterhook as th

MANY = 64
#: the number of steps that valgrind counts
COUNTED = 10


def noop(x: Tensor) -> None:
    return None


def seconds(run: Callable[[], None], rounds: int) -> float:
    start = time.thread_time()
    for _ in range(rounds):
        run()
    return (time.thread_time() - start) / rounds


def interleaved(runs: dict[str, Callable[[], None]], *, rounds: int, repeats: int = 9) -> dict[str, float]:
    """Return the best time of each run. The runs alternate, so that a busy machine slows all of them."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        seconds(run, rounds)
    for _ in range(repeats):
        for name, run in runs.items():
            best[name] = min(best[name], seconds(run, rounds))
    return best


def parameters() -> nn.ParameterList:
    torch.manual_seed(0)
    return nn.ParameterList(nn.Parameter(torch.randn(4)) for _ in range(MANY))


def parameter_run(kind: str, point: str) -> Callable[[], None]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = parameters()

    model = Model()
    if kind == "raw":
        for p in model.p:
            if point == "grad":
                p.register_hook(noop)
            else:
                p.register_post_accumulate_grad_hook(lambda p: noop(p.grad))
    elif kind == "ours":
        th.attach(model, [th.Hook("h", on="p.*", at=point, do=noop)])

    def run() -> None:
        torch.stack(list(model.p)).sum().backward()

    return run


def module_run(kind: str, point: str) -> Callable[[], None]:
    model = nn.Sequential(*[nn.Tanh() for _ in range(MANY)])
    if kind == "raw":
        for m in model:
            if point == "output":
                m.register_forward_hook(lambda m, args, out: noop(out))
            elif point == "input":
                m.register_forward_pre_hook(lambda m, args: noop(args[0]))
            elif point == "grad_output":
                m.register_full_backward_pre_hook(lambda m, grad: noop(grad[0]))
            else:
                m.register_full_backward_hook(lambda m, gi, go: noop(gi[0]))
    elif kind == "ours":
        th.attach(model, [th.Hook("h", on="*", at=point, do=noop)])
    x = torch.randn(8, requires_grad=True)
    backward = point.startswith("grad")

    def run() -> None:
        out = model(x)
        if backward:
            out.sum().backward()

    return run


def tensor_run(kind: str, point: str) -> Callable[[], None]:
    """Register one hook on each of many tensors, and run many backwards, to measure the cost of one firing."""
    x = torch.randn(8, requires_grad=True)
    middles = [x.tanh() for _ in range(MANY)]
    for h in middles:
        if kind == "raw":
            h.register_hook(noop)
        elif kind == "ours":
            th.hook(h, noop)
    out = torch.stack(middles).sum()

    def run() -> None:
        out.backward(retain_graph=True)

    return run


CASES: dict[str, tuple[Callable[[str, str], Callable[[], None]], str, float]] = {
    "tensor": (tensor_run, "tensor", 2.0),
    "grad": (parameter_run, "grad", 2.0),
    "grad_accumulated": (parameter_run, "grad_accumulated", 2.0),
    "input": (module_run, "input", 2.0),
    "output": (module_run, "output", 2.0),
    "grad_output": (module_run, "grad_output", 1.0),
    "grad_input": (module_run, "grad_input", 1.0),
}


def fired(repeats: int = 9) -> dict[str, float]:
    """Return the added cost of a site that fires, divided by the added cost of the same hook written by hand."""
    found = {}
    for name, (make, point, goal) in CASES.items():
        times = interleaved({k: make(k, point) for k in ("bare", "raw", "ours")}, rounds=40, repeats=repeats)
        raw, ours = (times[k] - times["bare"] for k in ("raw", "ours"))
        found[name] = ours / raw
        against = "the full backward hook" if goal == 1.0 else "by hand"
        print(f"{name:17} {ours / MANY * 1e6:6.2f} µs per site, {against} {raw / MANY * 1e6:6.2f}: {ours / raw:.2f} "
              f"(goal {goal})")  # fmt: skip
    return found


def gpt2() -> tuple[nn.Module, torch.optim.Optimizer]:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=128, n_positions=64))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def idle_plan() -> th.Plan:
    """Build a plan with every kind of point on every target, due in one step in a million."""
    seldom = th.When(every=1_000_000, start=999_999)
    points = ("input", "output", "grad_output", "grad_input", "grad", "grad_accumulated", "grad_final", "update")
    return th.Plan(th.Hook(p, on="**", at=p, do=th.stats(), when=seldom) for p in points)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    ids = torch.arange(64).reshape(2, 32) % 128
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()


def idle(repeats: int = 15) -> float:
    bare, attached = gpt2(), gpt2()
    th.attach(attached[0], idle_plan(), optimizer=attached[1])
    runs = {"bare": lambda: train(*bare, 1), "idle": lambda: train(*attached, 1)}
    times = interleaved(runs, rounds=5, repeats=repeats)
    ratio = times["idle"] / times["bare"]
    print(f"idle plan on tiny GPT-2: {ratio:.4f} of the time of a bare step (goal 1.01; the noise is about as large)")
    return ratio


def idle_instructions() -> float:
    """Return the instructions of some warm steps with an idle plan, divided by those of bare steps."""
    counts = {}
    for kind in ("bare", "idle"):
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null",
                   sys.executable, __file__, "--count", kind]  # fmt: skip
        text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        counts[kind] = int(text.rsplit("Collected :", 1)[1].split()[0]) / COUNTED
    ratio = counts["idle"] / counts["bare"]
    print(f"idle plan on tiny GPT-2: {counts['idle']:,.0f} instructions per step, bare {counts['bare']:,.0f}: "
          f"{ratio:.4f} (goal 1.01)")  # fmt: skip
    return ratio


def count(kind: str) -> None:
    """Run some steps to warm up, then the steps that valgrind counts."""
    model, optimizer = gpt2()
    if kind == "idle":
        th.attach(model, idle_plan(), optimizer=optimizer)
    train(model, optimizer, 3)
    gc.collect()
    gc.disable()
    for switch, steps in (("on", COUNTED), ("off", 0)):
        subprocess.run(["callgrind_control", "-i", switch, str(os.getpid())], check=True, capture_output=True)
        train(model, optimizer, steps)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--count", metavar="KIND", help="run the steps under valgrind; KIND is bare or idle")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.count:
        count(given.count)
    elif given.instructions:
        idle_instructions()
    else:
        fired()
        idle()
