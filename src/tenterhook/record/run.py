"""A recorded run, read: curves and frames out of its parts, by DuckDB."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tenterhook.errors import StoreError, nearest
from tenterhook.record.store import FINDINGS, LEDGER, PLAN, Folder, limits, merge

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Curve(NamedTuple):
    """One number over the steps."""

    steps: list[int]
    values: list[float]


class Run:
    """One run folder, or several in one query. `rows` is the table that `sql` asks: a Row each, and its `run`."""

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise StoreError(
                "reading a run needs duckdb, which is not installed", remedy="pip install 'tenterhook[record]'"
            ) from error
        self._folders = [Folder(path) for path in paths]
        self._connection = duckdb.connect()
        self._look()

    def _look(self) -> None:
        self._tried(lambda: self._connection.execute(f"create or replace view rows as {self._rows()}"))

    def _ask(self, query: str, parameters: list[Any]) -> duckdb.DuckDBPyConnection:
        return self._tried(lambda: self._connection.execute(query, parameters), again=self._look)

    @staticmethod
    def _tried(act: Callable[[], Any], again: Callable[[], None] | None = None) -> Any:
        """Parts may be merged between the moment they are listed and the moment they are read."""
        import duckdb

        for _ in range(8):
            try:
                return act()
            except duckdb.IOException:
                if again is not None:
                    again()
        return act()

    def _rows(self) -> str:
        """What is there of each run, without what a later attempt wrote anew."""
        kept = []
        for folder in self._folders:
            parts = folder.parts()
            if not parts:
                raise StoreError(f"there is no recorded run in {folder.path}", remedy="give the folder of a th.Store")
            until = limits(parts)
            for limit in {until[part.name] for part in parts}:
                files = ", ".join(_text(folder.full(p.name)) for p in parts if until[p.name] == limit)
                where = "" if limit is None else f" where step < {limit}"
                source = f"read_parquet([{files}], hive_partitioning = false)"
                kept.append(f"select {_text(folder.path)} as run, * from {source}{where}")
        return " union all ".join(kept)

    def sql(self, query: str, *parameters: Any) -> duckdb.DuckDBPyRelation:
        """Any query over `rows`: run, step, rank, hook, target, name, value, values, call, leaf."""
        return self._connection.sql(query, params=list(parameters) or None)

    def curve(self, hook: str, target: str, name: str, *, rank: int = 0) -> Curve:
        """One number of one target; of several runs, the last that has a step."""
        found = self._ask(
            "select step, last(value) from rows where hook = ? and target = ? and name = ? and rank = ? "
            "group by step order by step", [hook, target, name, rank],
        ).fetchall()  # fmt: skip
        if not found:
            self._missing(hook, target, name)
        return Curve([step for step, _ in found], [value for _, value in found])

    def frame(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> Any:
        """Rows as a pandas DataFrame; a `*` in a word stands for any letters."""
        return self.table(hook, target, name).to_pandas()

    def table(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> pa.Table:
        """The same as an Arrow table."""
        asked = {"hook": hook, "target": target, "name": name}
        where = [f"{column} glob ?" for column, word in asked.items() if word is not None]
        query = "select * from rows" + (f" where {' and '.join(where)}" if where else "") + " order by run, step"
        parameters = [word for word in asked.values() if word is not None]
        return self._tried(lambda: self.sql(query, *parameters).to_arrow_table(), again=self._look)

    @property
    def plan(self) -> str | None:
        """The text of the first run's plan, if it was kept."""
        return self._beside(PLAN)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """What came of each hook of the first run, if it was detached."""
        return json.loads(self._beside(LEDGER) or '{"ledger": []}')["ledger"]  # type: ignore[no-any-return]

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the doctor said of the first run, if it was asked."""
        return json.loads(self._beside(FINDINGS) or '{"findings": []}')["findings"]  # type: ignore[no-any-return]

    def _beside(self, name: str) -> str | None:
        folder = self._folders[0]
        return folder.read(name).decode() if name in folder.names() else None

    def verify(self) -> int:
        """Read every page with its checksum; the rows there are, or a StoreError."""
        count = 0
        for folder in self._folders:
            for part in folder.parts():
                try:
                    count += len(folder.table(part.name))
                except (OSError, ValueError) as error:
                    raise StoreError(
                        f"the part {part.name} is damaged: {error}", remedy="restore the file, or move it out"
                    ) from error
        return count

    def merge(self) -> None:
        """Make one part of many, for each attempt and rank."""
        for folder in self._folders:
            merge(folder)
        self._look()

    def _missing(self, hook: str, target: str, name: str) -> None:
        there = self._ask("select distinct hook, target, name from rows", []).fetchall()
        for place, word in enumerate((hook, target, name)):
            there = [row for row in there if row[place] == word] or there
        keys = ["/".join(row) for row in there]
        close = nearest("/".join((hook, target, name)), keys)
        raise StoreError(
            f"nothing is recorded of {hook}/{target}/{name}",
            remedy=f"the nearest is {close[0]}" if close else f"there are {', '.join(keys[:6])}",
        )


def _text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def open_run(*paths: str | os.PathLike[str]) -> Run:
    """Read what a `th.Store` wrote, while it writes or later; several folders are asked at once."""
    return Run(*paths)
