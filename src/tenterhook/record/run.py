"""Read a recorded run: curves and frames out of its parts, by DuckDB."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tenterhook.errors import StoreError, nearest
from tenterhook.record.folder import FINDINGS, LEDGER, PLAN, Folder, merge_parts, superseded_from

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
        self._refresh()

    def _refresh(self) -> None:
        """List the parts anew."""
        self._retry(lambda: self._connection.execute(f"create or replace view rows as {self._rows_query()}"))

    def _query(self, query: str, parameters: list[Any]) -> duckdb.DuckDBPyConnection:
        return self._retry(lambda: self._connection.execute(query, parameters), before=self._refresh)

    @staticmethod
    def _retry(act: Callable[[], Any], before: Callable[[], None] | None = None) -> Any:
        """Try several times: parts may be merged between the moment they are listed and the moment they are read."""
        import duckdb

        for _ in range(8):
            try:
                return act()
            except duckdb.IOException:
                if before is not None:
                    before()
        return act()

    def _rows_query(self) -> str:
        """Return the query for the rows of all runs, without those that a later attempt wrote anew."""
        selects = []
        for folder in self._folders:
            parts = folder.parts()
            if not parts:
                raise StoreError(f"there is no recorded run in {folder.path}", remedy="give the folder of a th.Store")
            limits = superseded_from(parts)
            for limit in set(limits.values()):
                files = ", ".join(_quoted(folder.full(p.name)) for p in parts if limits[p.name] == limit)
                where = "" if limit is None else f" where step < {limit}"
                source = f"read_parquet([{files}], hive_partitioning = false)"
                selects.append(f"select {_quoted(folder.path)} as run, * from {source}{where}")
        return " union all ".join(selects)

    def sql(self, query: str, *parameters: Any) -> duckdb.DuckDBPyRelation:
        """Run any query over `rows`: run, step, rank, hook, target, name, value, values, call, leaf."""
        return self._connection.sql(query, params=list(parameters) or None)

    def curve(self, hook: str, target: str, name: str, *, rank: int = 0) -> Curve:
        """Return one number of one target over the steps; of several runs, the last that has a step."""
        query = (
            "select step, last(value) from rows where hook = ? and target = ? and name = ? and rank = ? "
            "group by step order by step"
        )
        found = self._query(query, [hook, target, name, rank]).fetchall()
        if not found:
            raise self._nothing_recorded(hook, target, name)
        return Curve([step for step, _ in found], [value for _, value in found])

    def frame(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> Any:
        """Return rows as a pandas DataFrame; a `*` in a word stands for any letters."""
        return self.table(hook, target, name).to_pandas()

    def table(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> pa.Table:
        """Return the same rows as an Arrow table."""
        asked = {"hook": hook, "target": target, "name": name}
        where = [f"{column} glob ?" for column, word in asked.items() if word is not None]
        query = "select * from rows" + (f" where {' and '.join(where)}" if where else "") + " order by run, step"
        parameters = [word for word in asked.values() if word is not None]
        return self._retry(lambda: self.sql(query, *parameters).to_arrow_table(), before=self._refresh)

    @property
    def plan(self) -> str | None:
        """The text of the first run's plan, if it was kept."""
        return self._sidecar(PLAN)

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """What became of each hook of the first run, if it was detached."""
        return self._listed(LEDGER, "ledger")

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the doctor found in the first run, if it was asked."""
        return self._listed(FINDINGS, "findings")

    def _listed(self, name: str, key: str) -> list[dict[str, Any]]:
        """Read a list from a JSON file beside the parts; empty if there is no such file."""
        text = self._sidecar(name)
        listed: list[dict[str, Any]] = json.loads(text)[key] if text else []
        return listed

    def _sidecar(self, name: str) -> str | None:
        folder = self._folders[0]
        return folder.read(name).decode() if name in folder.names() else None

    def verify(self) -> int:
        """Read every page with its checksum; return how many rows there are, or raise a StoreError."""
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
        """Merge the parts of each attempt and rank into one."""
        for folder in self._folders:
            merge_parts(folder)
        self._refresh()

    def _nothing_recorded(self, hook: str, target: str, name: str) -> StoreError:
        there = self._query("select distinct hook, target, name from rows", []).fetchall()
        for place, word in enumerate((hook, target, name)):
            there = [row for row in there if row[place] == word] or there
        keys = ["/".join(row) for row in there]
        close = nearest("/".join((hook, target, name)), keys)
        return StoreError(
            f"nothing is recorded of {hook}/{target}/{name}",
            remedy=f"the nearest is {close[0]}" if close else f"there are {', '.join(keys[:6])}",
        )


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def open_run(*paths: str | os.PathLike[str]) -> Run:
    """Read what a `th.Store` wrote, while it writes or later; several folders are asked at once."""
    return Run(*paths)
