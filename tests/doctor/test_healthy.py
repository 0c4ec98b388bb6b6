"""Test that an exam of a healthy program reports no error or warning and leaves the results the same bit for bit.

This runs a part of the programs; `scripts/programs` runs all of them.
"""

from __future__ import annotations

import pytest

from tests.support.doctor.programs import Program, programs, run, same
from tests.support.earlier_torch import since

HEALTHY = programs("healthy")


#: every sixth program, all programs with hooks of libraries, and all that compile code during the exam
LIBRARIES = ("hf_bert_trainer", "lightning_callback_hooks", "accelerate_prepared", "wandb_watch_offline")
COMPILED = tuple(str(p) for p in HEALTHY if "compiled_" in str(p))
SLICE = [p for i, p in enumerate(HEALTHY) if i % 6 == 0 or str(p) in (*LIBRARIES, *COMPILED)]


_EARLIER = {"clipped_in_a_compiled_step": since(11, "does not compile clip_grad_norm_ as one graph")}


@pytest.mark.slice(2)
@pytest.mark.programs
@pytest.mark.parametrize("program", [pytest.param(p, id=str(p), marks=_EARLIER.get(str(p), ())) for p in SLICE])
def test_nothing_is_wrong(program: Program):
    program.need_packages()
    bare, seen = run(program, examined=False), run(program, examined=True)
    assert (seen.error, bare.error) == (None, None)
    assert seen.result is not None
    assert same(seen.result, bare.result)
    assert seen.findings.grave == [], repr(seen.findings)


def test_there_are_enough():
    assert len(HEALTHY) >= 80
    assert {str(p) for p in SLICE} >= set(LIBRARIES)
