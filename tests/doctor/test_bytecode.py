"""Test what the doctor reads in the code of a hook, on every version of Python."""

from __future__ import annotations

import pytest

from tenterhook.doctor.reading.bytecode import texts_in


def plain(state_dict: dict[str, int]) -> None:
    if "gamma" in state_dict:
        state_dict["weight"] = state_dict.pop("gamma")


def documented(state_dict: dict[str, int]) -> None:
    """Rename gamma."""
    if "gamma" in state_dict:
        state_dict["weight"] = state_dict.pop("gamma")


def with_a_number_first(state_dict: dict[str, int]) -> int:
    return 7 if "gamma" in state_dict else len("weight")


@pytest.mark.parametrize("fn", [plain, documented, with_a_number_first], ids=lambda fn: fn.__name__)
def test_texts_in_code_do_not_include_its_docstring(fn: object) -> None:
    assert sorted(texts_in(fn.__code__)) == ["gamma", "weight"]  # type: ignore[attr-defined]
