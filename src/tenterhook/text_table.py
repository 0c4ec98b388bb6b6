"""Format tables as text for the terminal and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: maximum number of targets that a table lists; any others are only counted
MOST = 12


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table that has a title, column names, rows and a footer."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    #: line below the table, for example the number of rows that are not shown
    foot: str = ""
    #: a picture for each row, as HTML; a text table has no pictures
    pictures: Sequence[str] = ()

    def text(self) -> str:
        """Return the table as aligned text."""
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
        """Return the table as HTML."""
        head = "".join(f"<th style='text-align:left'>{html.escape(h)}</th>" for h in self.head)
        rows = [
            "".join(f"<td style='text-align:{_align(c)}'>{html.escape(_cell(c))}</td>" for c in row)
            for row in self.rows
        ]
        if self.pictures:
            head += "<th></th>"
            rows = [f"{row}<td>{picture}</td>" for row, picture in zip(rows, self.pictures, strict=True)]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = f"<caption style='text-align:left'>{html.escape(self.title)}</caption>" if self.title else ""
        foot = f"<div>{html.escape(self.foot)}</div>" if self.foot else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


def _align(cell: Any) -> str:
    return "left" if isinstance(cell, str) else "right"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
