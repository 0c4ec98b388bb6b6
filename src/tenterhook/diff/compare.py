"""Compare two recorded runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tenterhook.diff.difference import Difference
from tenterhook.diff.pairs import Pair, Pairs
from tenterhook.diff.sentence import Compared, describe, say_equal
from tenterhook.diff.tolerance import Tolerance
from tenterhook.errors import StoreError
from tenterhook.record import no_run_in
from tenterhook.record.run_folder.find_runs import run_folders

Folder = str | os.PathLike[str]
#: the kinds that may differ by rounding alone
COMPUTED = ("forward", "loss", "backward", "update")


def compare(
    one: Folder, other: Folder, *, tolerance: float | None = None, perturbed: Sequence[Folder] = ()
) -> Difference:
    """Find the first step and layer in which two recorded runs differ.

    If both runs recorded digests with an equal setup (torch, device, number of ranks, compilation), bits are compared.
    Otherwise, statistics are compared with a tolerance.

    Args:
        one: The first run folder, or a folder that contains one run.
        other: The second run folder, or a folder that contains one run.
        tolerance: The largest relative difference of a number that counts as equal. By default, it is estimated.
        perturbed: Runs of the same program as the first run, whose weights were perturbed by one unit in the last
            place. The tolerance is then taken from how far they are from the first run.

    Returns:
        The first difference, or that there is none.

    Raises:
        StoreError: A folder contains no run or several runs, cannot be read, or both paths are the same.
    """
    first, second = _one_run(one), _one_run(other)
    if first.resolve() == second.resolve():
        raise StoreError(f"{one} and {other} are the same run", remedy="pass two runs")
    pairs = Pairs(first, second)
    setups = pairs.setups
    dtype = setups[0].dtype if setups[0] else "float32"
    allowed = Tolerance(dtype, tolerance, [Pairs(first, _one_run(path)) for path in perturbed])
    if tolerance is not None or perturbed or setups[0] is None or setups[0] != setups[1]:
        return _first_difference(pairs, allowed, exact=False)
    found = _first_difference(pairs, allowed, exact=True)
    if found.kind not in COMPUTED or found.relative is None or found.relative > allowed.least:
        return found
    # Some kernels round in another way each time. What was planted or broken may come later, and be larger.
    larger = _first_difference(pairs, allowed, exact=False)
    if larger.equal and found.step != pairs.first:  # such kernels would have shown in the first step
        return found
    return replace(found, sentence=f"{found.sentence} If rounding is ignored: {larger.sentence}")


def _first_difference(pairs: Pairs, allowed: Tolerance, *, exact: bool) -> Difference:
    """Return the first difference of bits, or the first one that rounding does not explain."""
    compared = Compared(pairs, exact=exact)
    for step in pairs.steps(exact=exact):
        found = _differing(step) if exact else allowed.unexplained(step)
        compared.rounding = allowed.largest
        if found:
            return describe(step, found, compared)
        compared.add(step)
    return say_equal(compared)


def _differing(step: list[Pair]) -> list[tuple[Pair, float]]:
    """Return the pairs whose bits differ, with the relative difference of their numbers."""
    return [(pair, pair.relative()) for pair in step if not pair.equal]


def _one_run(path: Folder) -> Path:
    """Return the run folder at a path, or the only one below it."""
    found = list(run_folders(Path(path)))
    if not found:
        raise no_run_in(str(path), "pass a folder that `tenterhook run --for-diff` wrote")
    if len(found) > 1:
        names = ", ".join(map(str, found[:4]))
        raise StoreError(f"{path} contains {len(found)} runs", remedy=f"pass one of them: {names}")
    return found[0]
