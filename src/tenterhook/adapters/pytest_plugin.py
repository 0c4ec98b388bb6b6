"""For pytest: a test that asks for `hook_doctor` fails if the doctor finds something wrong with its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenterhook.doctor import Exam


@pytest.fixture
def hook_doctor() -> Iterator[Exam]:
    """Watch every hook that the test registers; errors and warnings of the doctor fail the test."""
    from tenterhook.doctor import examine

    with examine() as exam:
        yield exam
    grave = exam.findings.grave
    if grave:
        pytest.fail("\n".join(map(str, grave)), pytrace=False)
