"""Provide the pytest fixture `hook_doctor`, which fails a test if the doctor finds a problem with the test's hooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenterhook.doctor import Exam


@pytest.fixture
def hook_doctor() -> Iterator[Exam]:
    """Watch every hook that the test registers, and fail the test if the doctor reports an error or a warning.

    pytest finds the fixture automatically if tenterhook is installed.

    Yields:
        The `Exam` that watches the hooks.

    Example:
        >>> import torch
        >>> def test_hook(hook_doctor):
        ...     x = torch.ones(2, requires_grad=True)
        ...     x.register_hook(lambda grad: grad * 2)
        ...     x.sum().backward()
        ...     assert len(hook_doctor.hooks) == 1
    """
    from tenterhook.doctor import examine

    with examine() as exam:
        yield exam
    grave = exam.findings.grave
    if grave:
        pytest.fail("\n".join(map(str, grave)), pytrace=False)
