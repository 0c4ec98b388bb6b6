"""Show a rig as tables: its hooks, and the numbers that they last measured."""

from __future__ import annotations

import html
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence

from tenterhook.audit import Imbalance
from tenterhook.drawing import sparkline
from tenterhook.plan import Action
from tenterhook.record import Recorder
from tenterhook.rig.ledger import Account, Ledger, ledger_table
from tenterhook.text_table import MOST, TextTable


def rig_tables(ledger: Ledger, recorder: Recorder, *, steps: int, attached: bool) -> list[TextTable]:
    """Return a table of all hooks, followed by a table for each hook with the numbers that it last measured."""
    counted = "1 step" if steps == 1 else f"{steps} steps"
    state = counted if attached else f"detached after {counted}"
    state += f"; graphs: {ledger.graphs}" if ledger.graphs else ""
    state += "".join(f"; {loss}" for loss in recorder.losses())
    return [ledger_table(ledger, f"rig: {state}", _never_fired(ledger)), *_value_tables(ledger, recorder)]


def rig_text(ledger: Ledger, recorder: Recorder, imbalances: Iterable[Imbalance], *, steps: int, attached: bool) -> str:
    """Return the tables as text, after the differences between the ledger and the model."""
    tables = rig_tables(ledger, recorder, steps=steps, attached=attached)
    return "\n\n".join([*map(str, imbalances), *(table.text() for table in tables)])


def rig_html(ledger: Ledger, recorder: Recorder, imbalances: Iterable[Imbalance], *, steps: int, attached: bool) -> str:
    """Return the same tables as HTML, followed by curves of the last numbers."""
    tables = rig_tables(ledger, recorder, steps=steps, attached=attached)
    differences = [f"<pre>{html.escape(str(one))}</pre>" for one in imbalances]
    return "".join([*differences, *(table.html() for table in tables), *_value_curves(ledger, recorder)])


def last_values(recorder: Recorder, id: str) -> dict[str, dict[str, float]]:
    """Return the numbers from the last step in which a hook was due: `{target: {name: number}}`."""
    table = recorder.last.get(id)
    found = table.values() if table is not None else {}
    for row in recorder.emitted(id):
        if not isinstance(row.value, list):
            found.setdefault(row.target, {})[row.name] = row.value
    return found


def last_vectors(recorder: Recorder, id: str) -> dict[str, dict[str, list[float]]]:
    """Return the lists from the last step in which a hook was due: `{target: {name: numbers}}`."""
    table = recorder.last.get(id)
    return table.vectors() if table is not None else {}


def warn_of_nothing(account: Account, method: str, steps: int, taps: Sequence[str]) -> None:
    """Warn that a method of the rig returns nothing for a hook, and say why."""
    hook, why = account.hook, why_nothing(account, steps)
    if method != "captured" and isinstance(hook.do, Action) and hook.do.name == "capture":
        why = f"its action captures tensors; read rig.captured({hook.id!r})"
    elif not account and taps:
        why = f"{why}; the taps that ran are {', '.join(map(repr, taps[:MOST]))}"
    warnings.warn(
        f"tenterhook: rig.{method}({hook.id!r}) is empty: hook {hook.id!r} at {hook.at}: {why}",
        RuntimeWarning,
        stacklevel=3,
    )


def why_nothing(account: Account, steps: int) -> str:
    """Return the reason why a hook has recorded nothing in this number of finished steps."""
    if account.state == "muted":
        return "the hook is muted (call rig.unmute)"
    if not account:
        return "no tap that it selects has run"
    if len(account.dormant) == len(account):
        return f"no target can fire: {_most_frequent(account.dormant.values())}"
    if account.fired and not steps:
        return (
            "no step has finished yet; optimizer.step() ends a step, or backward() if attach received no optimizer; in "
            "an evaluation, write `with rig.step():`"
        )
    if account.fired:
        return f"its action {account.hook.doing} has not recorded any so far"
    if account.skipped:
        why = max(account.skipped, key=account.skipped.__getitem__)
        evaluated = "; then put each pass into `with rig.step():`" if "eval mode" in why else ""
        return f"it was skipped: {why}{evaluated}"
    if steps and not account.due:
        return f"it was not due in any of the {steps} finished steps"
    if steps:
        return "its targets did not run"
    if account.hook.point.side == "step":
        return "no step was seen of an optimizer that attach received; call optimizer.step()"
    return "no pass through its targets was seen since it was attached"


def _most_frequent(reasons: Iterable[str]) -> str:
    return Counter(reasons).most_common(1)[0][0]


def _never_fired(ledger: Ledger) -> str:
    """List the sites that were due but never fired, although other sites of the same hook fired."""
    silent = [
        f"{id} on {site.name}"
        for id, account in ledger.items()
        if account.fired
        for site in account.values()
        if not site.fired and site.due and not site.skipped
    ]
    more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
    return f"never fired: {', '.join(silent[:4])}{more}" if silent else ""


def _value_tables(ledger: Ledger, recorder: Recorder) -> list[TextTable]:
    tables = []
    for id in ledger:
        values = last_values(recorder, id)
        names = list(dict.fromkeys(name for row in values.values() for name in row))
        if not names:
            continue
        shown = list(values.items())[:MOST]
        rows = [[target, *(row.get(n) for n in names)] for target, row in shown]
        foot = f"... and {len(values) - MOST} more" if len(values) > MOST else ""
        last = recorder.last.get(id)
        step = last.step if last is not None else recorder.emitted(id)[0].step
        tables.append(TextTable(f"{id}: step {step}", ("target", *names), rows, foot))
    return tables


def _value_curves(ledger: Ledger, recorder: Recorder) -> list[str]:
    """Draw the first number of each hook that measures several targets: one point for each target, in model order."""
    found = []
    for id in ledger:
        values = last_values(recorder, id)
        name = next((name for row in values.values() for name in row), None)
        if name is None or len(values) < 2:
            continue
        numbers = [row[name] for row in values.values() if name in row]
        label = f"{name} of hook {id} by target, {len(numbers)} targets"
        found.append(f"<div>{html.escape(label)}<br>{sparkline(numbers, label, width=480, height=48)}</div>")
    return found
