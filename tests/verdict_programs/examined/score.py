"""Run every seventh step of the programs again, and compare each step with a run without the tool, bit for bit.

Compared after each optimizer step: weights, gradients, the state of the optimizer, buffers, and the random generators
of torch, Python and NumPy. The programs are the healthy ones and the families of the planted faults.

    python score.py [--only TEXT] [--processes N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import runpy
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EVERY = 7


class StepDigests:
    """Digests of everything that a program can see, one for each optimizer step."""

    def __init__(self, path: Path) -> None:
        from torch.nn.modules.module import register_module_buffer_registration_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._file = path.open("w")
        self._buffers: list[tuple[weakref.ref[Any], str]] = []
        register_optimizer_step_post_hook(lambda optimizer, *_: self._step(optimizer))
        register_module_buffer_registration_hook(lambda module, name, _: self._note(module, name))

    def _note(self, module: Any, name: str) -> None:
        if not any(ref() is module and known == name for ref, known in self._buffers):  # it may be assigned again
            self._buffers.append((weakref.ref(module), name))

    def _step(self, optimizer: Any) -> None:
        parts = {"weights and gradients": self._parameters(optimizer), "state": self._state(optimizer)}
        parts |= {"buffers": self._values(), "random generators": self._random()}
        found = {name: hashlib.blake2b(b"".join(data), digest_size=8).hexdigest() for name, data in parts.items()}
        self._file.write(json.dumps(found) + "\n")
        self._file.flush()

    @staticmethod
    def _parameters(optimizer: Any) -> Iterator[bytes]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield _bytes_of(parameter)
                yield b"none" if parameter.grad is None else _bytes_of(parameter.grad)

    @staticmethod
    def _state(optimizer: Any) -> Iterator[bytes]:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                for name, value in sorted(optimizer.state.get(parameter, {}).items()):
                    yield name.encode() + (_bytes_of(value) if hasattr(value, "dtype") else repr(value).encode())

    def _values(self) -> Iterator[bytes]:
        for ref, name in self._buffers:
            module = ref()
            if module is not None:  # a forward pass may create modules, such as a loss, and so does a second run of it
                value = getattr(module, name, None)
                yield b"none" if value is None else _bytes_of(value)

    @staticmethod
    def _random() -> Iterator[bytes]:
        import numpy
        import torch

        yield torch.get_rng_state().numpy().tobytes()
        yield repr(random.getstate()).encode()
        yield repr([str(one) for one in numpy.random.get_state()]).encode()


def _bytes_of(tensor: Any) -> bytes:
    import torch

    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    return bytes(dense.contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes())


def run(script: Path, folder: Path, *, examined: bool) -> int:
    """Run a script in this process, and return its exit code."""
    import numpy
    import torch

    StepDigests(folder / "digests")
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    sys.argv = [str(script)]
    sys.path.insert(0, str(script.parent))
    if not examined:
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
        return 0
    from tenterhook.cli import main as command_line
    from tenterhook.verdict import examiner

    made: list[Any] = []

    class Examiner(examiner.Examiner):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

        def _leaps_of(self, leaps: Any, numbers: Any) -> str | None:
            return "asked for" if self.step % EVERY == EVERY - 1 else None

    examiner.Examiner, examiner.MAX_EXAMS = Examiner, sys.maxsize  # type: ignore[misc]
    code = command_line(["run", "--quiet", "--out", str(folder / "run"), str(script)])
    found: Counter[str] = Counter()
    for exam in (one for each in made for one in each.examinations):
        found["same" if exam.found and exam.found.reproduced else exam.refusal or "reported: other values"] += 1
    (folder / "examined").write_text(json.dumps(found))
    return code


def start(script: Path, folder: Path, *, examined: bool) -> tuple[int, list[dict[str, str]], str]:
    """Run a script in another process, and return its exit code, the digests of its steps and its last output."""
    folder.mkdir()
    command = [sys.executable, __file__, "--one", str(script), str(folder), *(["--examined"] if examined else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    lines = (folder / "digests").read_text().splitlines()
    return done.returncode, [json.loads(line) for line in lines], done.stderr[-800:]


def compare(script: Path) -> tuple[str, Counter[str]]:
    """Return the first difference between the runs of a script, or "", and the results of the examinations."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code, bare, _ = start(script, folder / "bare", examined=False)
        other, watched, said = start(script, folder / "examined", examined=True)
        file = folder / "examined" / "examined"
        examined = Counter(json.loads(file.read_text())) if file.exists() else Counter()
    if code != other or len(bare) != len(watched) or not bare:
        return f"exit codes {code} and {other}, {len(bare)} and {len(watched)} steps: {said}", examined
    for step, (one, two) in enumerate(zip(bare, watched, strict=True)):
        if one != two:
            return f"step {step}: {', '.join(part for part in one if one[part] != two[part])}", examined
    return "", examined


def main() -> int:
    """Compare all programs, and print the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only programs whose names contain this text")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--one", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--examined", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return run(options.one[0], options.one[1], examined=options.examined)
    folders = [HERE.parent / name for name in ("healthy/scripts", "planted/families", "unseen/families")]
    scripts = [one for folder in folders for one in sorted(folder.glob("*.py")) if options.only in one.stem]
    different, total = 0, Counter[str]()
    with ThreadPoolExecutor(options.processes) as pool:
        for script, (difference, examined) in zip(scripts, pool.map(compare, scripts), strict=True):
            different += bool(difference)
            total += examined
            print(f"{script.stem:28} {sum(examined.values()):4} examined, {examined['same']} the same {difference}")
            for why, count in examined.items():
                if why != "same":
                    print(f"    {count} times: {why}", flush=True)
    print(f"\n{len(scripts)} programs, of which {different} differ from the run without the tool")
    print(f"{total.total()} steps ran again, {total['same']} of them with the same values")
    for why, count in total.most_common():
        if why != "same":
            print(f"  {count}: {why}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
