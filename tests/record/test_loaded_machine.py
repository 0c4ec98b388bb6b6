"""Rows that were emitted are in the files, or a warning counts them, however the process ends."""

from __future__ import annotations

import pytest

from tests.support.record.loaded_machine import ROWS, run
from tests.support.slices import sliced

pytestmark = pytest.mark.programs


@pytest.mark.parametrize("seed", sliced([1, 2, 3], 3))
def test_every_row_of_a_finished_step_is_in_the_files(seed: int):
    outcome = run(seed, slow=0.5)
    assert outcome.fault is None
    assert outcome.rows >= outcome.announced * ROWS > 0
