"""Tables, for the terminal and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenterhook.rig.ledger import MUTED, Account

if TYPE_CHECKING:
    from tenterhook.rig.live import LiveHook
    from tenterhook.rig.rig import Rig

#: targets shown before the rest is counted
MOST = 12


@dataclass(frozen=True, slots=True)
class Table:
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


def rig_tables(rig: Rig) -> list[Table]:
    rows = []
    for id, account in rig.ledger.items():
        live = rig._rigging.lives[id]
        asleep = len(account.dormant)
        state = _state(account, live)
        rows.append([
            id, live.hook.at, live.hook.doing, len(account) - asleep, asleep, state,
            account.due, account.fired, account.changed, sum(account.skipped.values()), account.failed,
        ])  # fmt: skip
    head = ("hook", "at", "do", "sites", "dormant", "state", "due", "fired", "changed", "skipped", "failed")
    steps = "1 step" if rig.step_count == 1 else f"{rig.step_count} steps"
    state = steps if rig.attached else f"detached after {steps}"
    graphs = rig.ledger.graphs
    state += f"; graphs: {graphs}" if graphs else ""
    dropped = rig._recorder.dropped
    state += f"; {dropped} rows or captures were more than a step may hold, and were dropped" if dropped else ""
    return [Table(f"rig: {state}", head, rows, _never_fired(rig)), *_value_tables(rig)]


def _state(account: Account, live: LiveHook) -> str:
    if live.muted or (len(account) and all(why.startswith(MUTED) for why in account.dormant.values()) and
                      len(account.dormant) == len(account)):  # fmt: skip
        return "muted"
    if len(account) and len(account.dormant) == len(account):
        return "dormant"
    return "installed" if live.active else "idle"


def _never_fired(rig: Rig) -> str:
    """The sites that were due and never fired while others of their hook did."""
    silent = [
        f"{id} on {site.name}"
        for id, account in rig.ledger.items()
        if account.fired
        for site in account.values()
        if not site.fired and site.due and not site.skipped
    ]
    more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
    return f"never fired: {', '.join(silent[:4])}{more}" if silent else ""


def _value_tables(rig: Rig) -> list[Table]:
    tables = []
    for id in rig.ledger:
        values = rig.values(id)
        names = list(dict.fromkeys(n for row in values.values() for n, v in row.items() if isinstance(v, int | float)))
        if not names:
            continue
        shown = list(values.items())[:MOST]
        rows = [[target, *(row.get(n) for n in names)] for target, row in shown]
        foot = f"... and {len(values) - MOST} more" if len(values) > MOST else ""
        last = rig._recorder.last.get(id)
        step = last.step if last is not None else rig.rows(id)[0].step
        tables.append(Table(f"{id}: step {step}", ("target", *names), rows, foot))
    return tables


def rig_text(rig: Rig) -> str:
    return "\n\n".join(table.text() for table in rig_tables(rig))


def rig_html(rig: Rig) -> str:
    return "".join(table.html() for table in rig_tables(rig))


def account_table(account: Account) -> Table:
    rows = []
    for site in list(account.values())[:MOST]:
        notes = [f"dormant: {site.dormant}"] if site.dormant else []
        notes += [f"skipped {n}: {why}" for why, n in (site.skipped or {}).items()]
        notes += [f"re-bound {site.rebound}"] if site.rebound else []
        last = None if site.last < 0 else site.last
        rows.append([site.name, site.state, site.due, site.fired, site.changed, site.failed, last, "; ".join(notes)])
    foot = f"... and {len(account) - MOST} more" if len(account) > MOST else ""
    head = ("target", "state", "due", "fired", "changed", "failed", "last step", "notes")
    return Table("", head, rows, foot)
