"""Load the reader that is printed in docs/format.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.docs.run_page import blocks

PAGE = Path(__file__).parents[3] / "docs" / "format.md"


def source() -> str:
    (found,) = (block.text for block in blocks(PAGE.read_text()) if "def read(file):" in block.text)
    return found


@cache
def reader() -> tuple[Callable[[bytes], dict[str, Any]], type[Exception]]:
    """Return the function that reads a state from the bytes of a safetensors file, and the exception it raises."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(source(), PAGE.name, "exec", dont_inherit=True), names)
    return names["read"], names["Refused"]
