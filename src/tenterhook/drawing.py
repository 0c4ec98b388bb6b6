"""Draw small curves, bars and heat maps as SVG, for notebooks."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

#: colors that can be read on a light and on a dark background
LINE, FAINT, BAD = "#2a78c2", "#8888884d", "#d62839"
#: colors of a heat map, from small to large values
SCALE = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def sparkline(values: Sequence[float], label: str, *, width: int = 120, height: int = 24) -> str:
    """Draw a curve. A value that is not finite is a red mark at the bottom.

    Args:
        values: The values, from left to right.
        label: What the curve shows, for screen readers and as a tooltip.
        width: The width in pixels.
        height: The height in pixels.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    span = high - low if math.isfinite(high - low) else 0.0
    step = (width - 4) / max(len(values) - 1, 1)
    lines: list[list[str]] = [[]]
    marks = []
    for number, value in enumerate(values):
        x = 2 + number * step
        if math.isfinite(value):
            y = height - 2 - (height - 4) * ((value - low) / span if span else 0.5)
            lines[-1].append(f"{x:.1f},{y:.1f}")
        else:
            lines.append([])
            marks.append(f"<rect x='{x - 1:.1f}' y='{height - 4}' width='2' height='4' fill='{BAD}'/>")
    # A line with one point would be invisible.
    drawn = [" ".join(line if len(line) > 1 else line * 2) for line in lines if line]
    curves = [
        f"<polyline points='{points}' fill='none' stroke='{LINE}' stroke-width='1.5' stroke-linecap='round'/>"
        for points in drawn
    ]
    return _svg(width, height, label, [*curves, *marks])


def bar(part: float, label: str, *, width: int = 80, height: int = 10) -> str:
    """Draw a bar.

    Args:
        part: The filled part of the bar, from 0 to 1.
        label: What the bar shows.
        width: The width in pixels.
        height: The height in pixels.
    """
    filled = width * min(max(part, 0.0), 1.0) if math.isfinite(part) else 0.0
    parts = [f"<rect width='{width}' height='{height}' fill='{FAINT}'/>"]
    parts += [f"<rect width='{filled:.1f}' height='{height}' fill='{LINE}'/>"]
    return _svg(width, height, label, parts)


def heat_map(rows: Sequence[tuple[str, Sequence[float | None]]], label: str, *, width: int = 480) -> str:
    """Draw a heat map on a logarithmic scale. A value that is not finite is red, and a missing one is left out.

    Args:
        rows: The name and the values of each row.
        label: What the map shows.
        width: The width of the cells in pixels.
    """
    columns = max((len(values) for _, values in rows), default=0)
    logs = [math.log10(v) for _, values in rows for v in values if v is not None and math.isfinite(v) and v > 0]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    size, left = 14, 8 + 7 * min(max((len(name) for name, _ in rows), default=0), 32)
    cell = width / max(columns, 1)
    parts = []
    for number, (name, values) in enumerate(rows):
        y = number * size
        parts.append(
            f"<text x='{left - 6}' y='{y + 11}' text-anchor='end' font-size='11' fill='currentColor'>"
            f"{html.escape(name if len(name) <= 32 else '…' + name[-31:])}</text>"
        )
        for column, value in enumerate(values):
            if value is not None:
                parts.append(
                    f"<rect x='{left + column * cell:.1f}' y='{y}' width='{cell + 0.1:.1f}' height='{size - 1}' "
                    f"fill='{_color(value, low, high)}'><title>{html.escape(name)}: {value:.4g}</title></rect>"
                )
    return _svg(left + width, max(len(rows) * size, 1), label, parts)


def _color(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return BAD
    part = (math.log10(value) - low) / (high - low) if value > 0 and high > low else float(value > 0)
    place = min(max(part, 0.0), 1.0) * (len(SCALE) - 1)
    below = min(int(place), len(SCALE) - 2)
    red, green, blue = (
        round(a + (b - a) * (place - below)) for a, b in zip(SCALE[below], SCALE[below + 1], strict=True)
    )
    return f"#{red:02x}{green:02x}{blue:02x}"


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f"<svg role='img' aria-label='{html.escape(label, quote=True)}' width='{width:.0f}' height='{height:.0f}' "
        f"viewBox='0 0 {width:.0f} {height:.0f}' style='font-family:monospace'><title>{html.escape(label)}</title>"
        + "".join(parts)
        + "</svg>"
    )
