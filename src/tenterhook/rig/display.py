"""Tables, for the terminal and for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenterhook.rig.ledger import Account
from tenterhook.rig.runtime.attached_hook import MUTED
from tenterhook.text_table import MOST, Table

if TYPE_CHECKING:
    from tenterhook.rig.rig import Rig
    from tenterhook.rig.runtime.attached_hook import LiveHook


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
