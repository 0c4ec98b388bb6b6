"""Check the answers in pairs.toml with plain PyTorch hooks.

    python verify.py                  check all pairs
    python verify.py mlp gpt-clip     check the pairs whose names begin with one of these words
    python verify.py --json FILE      also write what was seen

Every run is started once. The inputs, weights, outputs, losses, gradients, learning rates and new weights of each
optimizer step are kept as tensors, and the two runs of a pair are compared bit by bit. If rounding may differ (another
number of ranks, compilation, or `rounding = true`), they are compared with a tolerance.
"""

import io
import json
import os
import runpy
import socket
import sys
import tempfile
import tomllib
import traceback
from pathlib import Path

import torch
import torch._dynamo
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

HERE = Path(__file__).resolve().parent
KINDS = ["data", "weights", "forward", "loss", "backward", "rate", "update"]


def tensors(value):
    """All tensors in a nested value, in order."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return [(value.full_tensor() if hasattr(value, "full_tensor") else value).clone().contiguous()]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors(item)]
    return []


class Recorder:
    """Hooks on all modules and optimizers of one process."""

    def __init__(self, inner):
        self.stack, self.models, self.inner = [], {}, inner
        if inner:
            module = torch.nn.modules.module
            module.register_module_forward_pre_hook(self.before)
            module.register_module_forward_hook(self.after)
        else:
            self.watch_compiled()
        register_optimizer_step_pre_hook(self.step_begins)
        register_optimizer_step_post_hook(self.step_ends)
        backward = torch.Tensor.backward

        def patched(tensor, *args, **kwargs):
            for state in self.models.values():
                state["now"]["loss"] += tensors(tensor)
            return backward(tensor, *args, **kwargs)

        torch.Tensor.backward = patched

    def watch_compiled(self):
        """In a compiled run, see only the inputs of the whole model."""
        compiled = torch._dynamo.eval_frame.OptimizedModule
        call = compiled.__call__

        def patched(module, *args, **kwargs):
            self.before(module._orig_mod, args)
            return call(module, *args, **kwargs)

        compiled.__call__ = patched

    @staticmethod
    def ignored(module):
        wrapper = type(module).__name__ in ("DistributedDataParallel", "OptimizedModule")
        return wrapper or not torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1

    def before(self, module, args):
        if self.ignored(module):
            return
        if not self.stack and list(module.parameters()):
            if id(module) not in self.models:
                self.models[id(module)] = {"root": module, "now": self.empty(), "steps": []}
            now = self.models[id(module)]["now"]
            now["data"] += tensors(args)
            if now["weights"] is None:
                now["weights"] = self.weights(module)
        if self.inner:
            self.stack.append(module)

    def after(self, module, args, output):
        if self.ignored(module):
            return
        root = self.stack[0]
        assert self.stack.pop() is module
        if id(root) in self.models:
            names = {id(m): name for name, m in root.named_modules()}
            self.models[id(root)]["now"]["forward"].append((names[id(module)] or ".", tensors(output)))

    @staticmethod
    def empty():
        return {"data": [], "weights": None, "forward": [], "loss": [], "backward": [], "rate": [], "update": []}

    @staticmethod
    def weights(root):
        return [(name, tensors(p)) for name, p in root.named_parameters()]

    def mine(self, optimizer):
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [s for s in self.models.values() if any(id(p) in owned for p in s["root"].parameters())]

    def step_begins(self, optimizer, args, kwargs):
        rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        for state in self.mine(optimizer):
            named = list(state["root"].named_parameters())
            state["now"]["backward"] = [(name, tensors(p.grad)) for name, p in reversed(named)]
            state["now"]["rate"] = [(name, [torch.tensor(float(rates[id(p)]))]) for name, p in named if id(p) in rates]

    def step_ends(self, optimizer, args, kwargs):
        for state in self.mine(optimizer):
            state["now"]["update"] = self.weights(state["root"])
            state["steps"].append(state["now"])
            state["now"] = self.empty()

    def result(self):
        return [s["steps"] for s in self.models.values() if s["steps"]]


def child(program, arguments, rank, world, port, out):
    """Run a program in this process with the hooks, and save what they saw."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    recorder = Recorder(inner="--compile" not in arguments)
    sys.argv = [program, *arguments]
    runpy.run_path(str(HERE / program), run_name="__main__")
    buffer = io.BytesIO()
    torch.save(recorder.result(), buffer)
    Path(out).write_bytes(buffer.getvalue())


def run(program, arguments, world, folder, number):
    """Run a program with `world` processes; returns the records of all ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    files, pids = [f"{folder}/{number}.{rank}" for rank in range(world)], []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                child(program, arguments, rank, world, port, files[rank])
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        pids.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert not any(codes), (program, arguments, codes)
    return [torch.load(file) for file in files]


def same(a, b, bits):
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if x.shape != y.shape:
            return False
        if bits:
            if x.dtype != y.dtype or x.numpy(force=True).tobytes() != y.numpy(force=True).tobytes():
                return False
        elif (x.double() - y.double()).norm() > 2e-3 * (1e-6 + x.double().norm()):
            return False
    return True


def as_bits(record):
    """bfloat16 has no NumPy type: look at it as int16."""
    return [t.view(torch.int16) if t.dtype == torch.bfloat16 else t for t in record]


def compare(one, two, bits, kinds):
    """The first difference: step, kind and all targets of this kind and step. Models take their steps in turn."""
    ranks = range(max(len(one), len(two)))
    models = len(one[0])
    assert all(len(r) == models for r in one + two), "another number of models"
    count = min(len(steps) for r in one + two for steps in r)
    quiet = {}
    for step in range(count):
        for model, kind in ((m, k) for m in range(models) for k in kinds):
            found = []
            for rank in ranks:
                a = one[rank % len(one)][model][step][kind]
                b = two[rank % len(two)][model][step][kind]
                if kind in ("weights", "update") and not bits:
                    # where a gradient is only rounding, an optimizer such as Adam makes the rounding large
                    for name, grads in one[rank % len(one)][model][step]["backward"]:
                        for grad in grads:
                            small = grad.abs() <= 1e-5 * grad.abs().max()
                            if kind == "update":
                                quiet[name] = quiet.get(name, False) | small
                    a = [(n, [t.masked_fill(quiet.get(n, torch.tensor(False)), 0) for t in ts]) for n, ts in a]
                    b = [(n, [t.masked_fill(quiet.get(n, torch.tensor(False)), 0) for t in ts]) for n, ts in b]
                if kind in ("data", "loss"):
                    a, b = [(".", a)], [(".", b)]
                if kind == "update" and not bits:
                    loud = {n: ~q for n, q in quiet.items()}
                    before_a = dict(one[rank % len(one)][model][step]["weights"])
                    before_b = dict(two[rank % len(two)][model][step]["weights"])
                    a = [(n, [(x - y) * loud.get(n, 1) for x, y in zip(t, before_a[n])]) for n, t in a]
                    b = [(n, [(x - y) * loud.get(n, 1) for x, y in zip(t, before_b[n])]) for n, t in b]
                if [n for n, _ in a] != [n for n, _ in b]:
                    found.append("(other layers)")
                    continue
                for (name, x), (_, y) in zip(a, b):
                    if not same(as_bits(x) if bits else x, as_bits(y) if bits else y, bits):
                        found.append(name)
            if found:
                return {"step": step, "kind": kind, "targets": list(dict.fromkeys(found))}
    lengths = {len(steps) for r in one + two for steps in r}
    return {"step": count, "kind": "length", "targets": ["."]} if len(lengths) > 1 else None


def main():
    words = sys.argv[1:]
    out = None
    if "--json" in words:
        at = words.index("--json")
        out, words = words[at + 1], words[:at] + words[at + 2 :]
    pairs = tomllib.loads((HERE / "pairs.toml").read_text())["pair"]
    if words:
        pairs = [p for p in pairs if p["name"].startswith(tuple(words))]
    cache, seen, wrong, count = {}, {}, [], 0
    with tempfile.TemporaryDirectory() as folder:
        for pair in pairs:
            runs = []
            for side, world, occasion in zip(("first", "second"), pair["ranks"], (0, 1)):
                program = pair.get(f"{side}_program", pair.get("program"))
                key = (program, *pair[side], world)
                again = occasion == 1 and pair["first"] == pair["second"] and pair["ranks"][0] == pair["ranks"][1]
                if again or key not in cache:
                    count += 1
                    record = run(program, pair[side], world, folder, count)
                    if again:
                        runs.append(record)
                        continue
                    cache[key] = record
                runs.append(cache[key])
            compiled = ["--compile" in pair[side] for side in ("first", "second")]
            other_ranks = pair["ranks"][0] != pair["ranks"][1]
            bits = not (other_ranks or compiled[0] != compiled[1] or (pair["equal"] and pair.get("rounding", False)))
            kinds = [k for k in KINDS if not (other_ranks and k in ("data", "forward", "loss"))]
            if any(compiled) and not other_ranks:
                kinds.remove("forward")
            if any(compiled) and pair.get("kind") == "forward":
                # outputs inside a compiled model are not visible to these hooks: compare without compilation
                runs, kinds, bits = [], KINDS, True
                for side in ("first", "second"):
                    plain = [a for a in pair[side] if a != "--compile"]
                    runs.append(run(pair["program"], plain, 1, folder, f"plain{len(runs)}"))
            result = compare(*runs, bits, kinds)
            seen[pair["name"]] = result
            if pair["equal"]:
                good = result is None
            else:
                good = result is not None and result["step"] == pair["step"]
                good = good and result["kind"] in [pair["kind"], *pair.get("also_kind", [])]
                good = good and pair["target"] in [*result["targets"], "."]
                good = good and result["targets"][0] in [pair["target"], *pair["also"]]
            expected = "equal" if pair["equal"] else f"{pair['step']} {pair['kind']} {pair['target']}"
            shown = "equal" if result is None else f"{result['step']} {result['kind']} {' '.join(result['targets'][:6])}"
            print("ok   " if good else "WRONG", pair["name"], "| key:", expected, "| seen:", shown, flush=True)
            if not good:
                wrong.append(pair["name"])
            if out:
                Path(out).write_text(json.dumps(seen, indent=1))
    print(f"{len(pairs) - len(wrong)} keys confirmed, {len(wrong)} not confirmed: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
