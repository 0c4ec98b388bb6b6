"""Tables of text, for the terminal and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: targets shown before the rest is counted
MOST = 12


@dataclass(frozen=True, slots=True)
class TextTable:
    """A title, a head, rows of cells and a line below them."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    #: what stands below: rows that are not shown
    foot: str = ""

    def text(self) -> str:
        cells = [[_cell(c) for c in row] for row in (self.head, *self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.head))]
        lines = [self.title] if self.title else []
        for number, row in enumerate(cells):
            parts = [
                c.rjust(w) if number and not isinstance(self.rows[number - 1][i], str) else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(parts).rstrip())
            if number == 0:
                lines.append("  ".join("─" * w for w in widths))
        return "\n".join([*lines, *([self.foot] if self.foot else [])])

    def html(self) -> str:
        head = "".join(f"<th style='text-align:left'>{html.escape(h)}</th>" for h in self.head)
        body = "".join(
            "<tr>" + "".join(f"<td style='text-align:{_align(c)}'>{html.escape(_cell(c))}</td>" for c in row) + "</tr>"
            for row in self.rows
        )
        caption = f"<caption style='text-align:left'>{html.escape(self.title)}</caption>" if self.title else ""
        foot = f"<div>{html.escape(self.foot)}</div>" if self.foot else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def _align(cell: Any) -> str:
    return "left" if isinstance(cell, str) else "right"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
