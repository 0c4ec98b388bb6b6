"""Read the pages about the codes of findings and verdicts, which the user interface shows without a network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_HERE = Path(__file__).resolve()
#: where the pages are: in the wheel, or in a checkout of the source code
_FOLDERS = (_HERE.parents[1] / "findings", _HERE.parents[4] / "docs" / "findings")
_CODE = re.compile(r"TH\d{3}")


def pages_about(codes: Iterable[object]) -> dict[str, str]:
    """Return the page about each code as Markdown.

    Args:
        codes: The codes that a run folder contains. A code that has no page is left out.
    """
    valid = sorted({code for code in codes if isinstance(code, str) and _CODE.fullmatch(code)})
    files = {code: folder / f"{code}.md" for code in valid for folder in _FOLDERS if folder.is_dir()}
    return {code: file.read_text(encoding="utf-8") for code, file in files.items() if file.is_file()}
