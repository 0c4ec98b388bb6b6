"""Read curves, DataFrames and tables from recorded runs with DuckDB."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenterhook.errors import StoreError, nearest
from tenterhook.record.run_folder.folder import FINDINGS, LEDGER, MODEL, PLAN, VERDICTS, Folder, merge_parts
from tenterhook.record.run_folder.part import DEFAULT_LIMITS, ReadLimits, superseded_from
from tenterhook.record.run_folder.run_html import run_html
from tenterhook.record.run_folder.sidecars import (
    FindingsFile,
    Layer,
    LedgerFile,
    ModelFile,
    Setup,
    VerdictsFile,
    read_json,
)
from tenterhook.record.verdict import Verdict

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

#: characters that make a name a pattern
_GLOB = frozenset("*?[")
#: characters that DuckDB does not take literally in a path
_WILDCARDS = frozenset("*?[\\")


class Curve(NamedTuple):
    """The values of one recorded number across steps."""

    steps: list[int]
    values: list[float]


class Run:
    """An object that reads one or more run folders. `th.open_run` returns a `Run`.

    Args:
        *paths: Run folders, as paths or as URIs that Arrow supports.
        limits: The largest folder that is read. A folder may come from an untrusted source.

    Raises:
        StoreError: DuckDB or pyarrow is not installed, a folder contains no recorded run, a file in it cannot be read,
            or the folder exceeds a limit.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> folder = tempfile.mkdtemp()
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> hook = th.Hook("grads", on="**", at="grad", do=th.stats())
        >>> with th.attach(model, hook, sinks=th.Store(folder)):
        ...     model(torch.ones(1, 1)).sum().backward()
        >>> run = th.Run(folder)
        >>> run.sql("select name, value from rows where name = 'norm'").fetchall()
        [('norm', 1.0)]
    """

    def __init__(self, *paths: str | os.PathLike[str], limits: ReadLimits = DEFAULT_LIMITS) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise StoreError(
                "reading a run needs duckdb, which is not installed", remedy="run pip install 'tenterhook[record]'"
            ) from error
        self.limits = limits
        #: the run folders
        self.folders = [Folder(path, limits) for path in paths]
        self._connection = duckdb.connect()
        #: the parts that DuckDB reads through Arrow
        self._remote: list[Any] = []
        self._confine()
        self.refresh()

    def _confine(self) -> None:
        """Let queries read the run folders only, and load no extensions."""
        local = [folder.full("") for folder in self.folders if folder.local]
        self._connection.execute("set autoinstall_known_extensions = false")
        self._connection.execute("set autoload_known_extensions = false")
        self._connection.execute("set allowed_directories = ?", [local])
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def refresh(self) -> None:
        """List the parts again, so that the next query reads the rows that were written in the meantime.

        Raises:
            StoreError: The folder contains no recorded run any more, or a file in it cannot be read.
        """
        self._retry(lambda: self._connection.execute(f"create or replace view rows as {self._rows_query()}"))

    def fetch(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run an SQL query on `rows` and return the rows of its result.

        Args:
            query: Query in DuckDB SQL. Use `?` as the placeholder for each parameter.
            *parameters: Values for the placeholders, in order.

        Returns:
            The rows of the result, each as a tuple.

        Raises:
            StoreError: The parts cannot be read.
        """
        found: list[tuple[Any, ...]] = self._retry(
            lambda: self._connection.execute(query, parameters).fetchall(), before=self.refresh
        )
        return found

    def fetch_table(self, query: str, *parameters: Any) -> pa.Table:
        """Run an SQL query on `rows` and return its result as an Arrow table.

        Args:
            query: Query in DuckDB SQL. Use `?` as the placeholder for each parameter.
            *parameters: Values for the placeholders, in order.

        Returns:
            The result as an Arrow table.

        Raises:
            StoreError: The parts cannot be read.
        """
        return self._retry(lambda: self.sql(query, *parameters).to_arrow_table(), before=self.refresh)

    @staticmethod
    def _retry(act: Callable[[], Any], before: Callable[[], None] | None = None) -> Any:
        """Retry after I/O errors, because parts may be merged after they are listed and before they are read."""
        import duckdb

        failed: Exception | None = None
        others = 0
        for _ in range(8):
            try:
                return act()
            except duckdb.IOException as error:
                failed = error
                if before is not None:
                    before()
            except duckdb.Error as error:
                # A part that is replaced between the read of its footer and that of its rows looks damaged.
                failed, others = error, others + 1
                if others > 2:
                    break
                if before is not None:
                    before()
        raise StoreError(
            f"the rows of the run cannot be read: {str(failed).splitlines()[0][:200]}",
            remedy="call run.verify(), which names the part that is damaged",
        ) from failed

    def _rows_query(self) -> str:
        """Return the query for the rows of all runs, except the rows that a later attempt recorded again."""
        selects = []
        for folder in self.folders:
            parts = folder.parts()
            if not parts:
                inner = sorted(str(plan.parent) for plan in Path(str(folder.path)).glob(f"*/{PLAN}"))
                remedy = f"pass one of {', '.join(inner)}" if inner else "pass a folder that a th.Store wrote"
                raise no_run_in(str(folder.path), remedy)
            limits = superseded_from(parts)
            for limit in set(limits.values()):
                files = [folder.full(part.name) for part in parts if limits[part.name] == limit]
                where = "" if limit is None else f" where step < {limit}"
                selects.append(f"select {_quoted(folder.path)} as run, * from {self._source(folder, files)}{where}")
        return " union all ".join(selects)

    def _source(self, folder: Folder, files: list[str]) -> str:
        """Return the SQL expression for the rows of some files."""
        # DuckDB expands wildcards in paths, and cannot always be stopped from it, but Arrow does not.
        if folder.local and not _WILDCARDS & set(folder.full("")):
            listed = ", ".join(map(_quoted, files))
            return f"read_parquet([{listed}], hive_partitioning = false)"
        name = f"remote_{len(self._remote)}"
        self._remote.append(folder.dataset(files))
        self._connection.register(name, self._remote[-1])
        return name

    def sql(self, query: str, *parameters: Any) -> duckdb.DuckDBPyRelation:
        """Run an SQL query.

        The table `rows` has the columns `run`, `step`, `rank`, `hook`, `target`, `name`, `value`, `values`, `call` and
        `leaf`. `value` holds a single number, and `values` holds a list of numbers.

        Args:
            query: Query in DuckDB SQL. Use `?` as the placeholder for each parameter.
            *parameters: Values for the placeholders, in order.

        Returns:
            The result as a DuckDB relation, with methods such as `fetchall()` and `df()`.
        """
        return self._connection.sql(query, params=list(parameters) or None)

    def curve(self, hook: str, target: str, name: str, *, rank: int = 0) -> Curve:
        """Return the values of one number across steps, for one target.

        If a step has several values, the curve has the value of the last call and the first leaf. Of several runs, it
        has the value of the run whose path is last in alphabetical order.

        Args:
            hook: Id of the hook.
            target: Name of the target.
            name: Name of the number, such as `"norm"`.
            rank: Rank that recorded the number.

        Returns:
            A named tuple with the lists `steps` and `values`.

        Raises:
            StoreError: Nothing is recorded under these names. The error message suggests names that are recorded.
        """
        query = (
            "select step, last(value order by run, call, leaf desc) from rows "
            "where hook = ? and target = ? and name = ? and rank = ? group by step order by step"
        )
        found = self.fetch(query, hook, target, name, rank)
        if not found:
            raise self._nothing_recorded(hook, target, name, rank)
        return Curve([step for step, _ in found], [value for _, value in found])

    def frame(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> Any:
        """Return rows as a pandas DataFrame.

        Args:
            hook: Id of the hook, or a pattern in which `*` matches any characters. By default, all hooks match.
            target: Name of the target, or a pattern. By default, all targets match.
            name: Name of the number, or a pattern. By default, all names match.

        Returns:
            A DataFrame with the columns of `rows`, sorted by run and step.

        Raises:
            StoreError: The parts cannot be read, or the names or lists in the rows exceed a limit.
        """
        # The memory of each column is freed as soon as the column is converted.
        return self.table(hook, target, name).to_pandas(split_blocks=True, self_destruct=True)

    def check_size(self, rows: str = "from rows", *parameters: Any) -> None:
        """Check the size of some rows as a table. A part stores a name or a list once, but a table in every row.

        Args:
            rows: The end of a query in DuckDB SQL, which begins with `from`.
            *parameters: Values for the placeholders, in order.

        Raises:
            StoreError: The names or lists in the rows exceed a limit.
        """
        limit = self.limits.table_bytes
        names = " + ".join(f"coalesce(strlen({column}), 0)" for column in ("hook", "target", "name"))
        ((count, size, lists),) = self.fetch(f"select count(*), sum({names}), 8 * sum(len(values)) {rows}", *parameters)
        words = 0
        # The different names are not larger than all names, so they are rarely counted. A query opens every part.
        for column in ("hook", "target", "name") if size is not None and size > limit else ():
            different = f"(select distinct {column} as word {rows})"
            words += self.fetch(f"select sum(strlen(word)) from {different}", *parameters)[0][0] or 0
        for what, found, most in (
            (f"the names in {count:,} rows", size, max(limit, 256 * count)),
            (f"the lists in {count:,} rows", lists, max(limit, 4096 * count)),
            ("the different names", words, limit),
        ):
            if found is not None and found > most:
                raise StoreError(
                    f"{what} have {int(found):,} bytes; the limit is {most:,}",
                    remedy="read fewer rows, or if you trust the folder, pass limits=th.ReadLimits(table_bytes=...) to "
                    "th.open_run",
                )

    def table(self, hook: str | None = None, target: str | None = None, name: str | None = None) -> pa.Table:
        """Return rows as an Arrow table.

        Args:
            hook: Id of the hook, or a pattern in which `*` matches any characters. By default, all hooks match.
            target: Name of the target, or a pattern. By default, all targets match.
            name: Name of the number, or a pattern. By default, all names match.

        Returns:
            A table with the columns of `rows`, sorted by run and step.

        Raises:
            StoreError: The parts cannot be read, the names or lists in the rows exceed a limit, or nothing is recorded
                under a name that is not a pattern.
        """
        asked = {"hook": hook, "target": target, "name": name}
        where = [f"{column} glob ?" for column, word in asked.items() if word is not None]
        rows = "from rows" + (f" where {' and '.join(where)}" if where else "")
        parameters = [word for word in asked.values() if word is not None]
        self.check_size(rows, *parameters)
        found = self.fetch_table(f"select * {rows} order by run, step", *parameters)
        if not found.num_rows:
            self._check_recorded({column: word for column, word in asked.items() if word and not _GLOB & set(word)})
        return found

    @property
    def plan(self) -> str | None:
        """Return the plan of the first run as JSON text, or None if the folder does not contain a plan."""
        text = self._sidecar(PLAN)
        return None if text is None else text.decode(errors="replace")

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """Return the counters of each hook in the first run. The list is empty until the rig is detached."""
        text = self._sidecar(LEDGER)
        return read_json(LEDGER, text, LedgerFile).ledger if text else []

    @property
    def findings(self) -> list[dict[str, Any]]:
        """Return the doctor's findings for the first run. The list is empty if the doctor did not check the run."""
        text = self._sidecar(FINDINGS)
        return read_json(FINDINGS, text, FindingsFile).findings if text else []

    @property
    def verdicts(self) -> list[Verdict]:
        """Return what went wrong in the training of the first run, the cause first.

        The list is empty if nothing went wrong, or if nothing watched the training.
        """
        text = self._sidecar(VERDICTS)
        return read_json(VERDICTS, text, VerdictsFile).verdicts if text else []

    @property
    def layers(self) -> list[Layer]:
        """Return the modules of the model of the first run, in the order in which they ran if that is known.

        The list is empty if the run was recorded with an earlier version.
        """
        model = self._model()
        return model.layers if model else []

    @property
    def setup(self) -> Setup | None:
        """Return where and how the model of the first run was trained.

        It is None if the run was recorded with an earlier version.
        """
        model = self._model()
        return model.setup if model else None

    def _model(self) -> ModelFile | None:
        text = self._sidecar(MODEL)
        return read_json(MODEL, text, ModelFile) if text else None

    def _sidecar(self, name: str) -> bytes | None:
        folder = self.folders[0]
        return folder.read(name) if name in folder.names() else None

    def _repr_html_(self) -> str:
        title = ", ".join(str(folder.path) for folder in self.folders)
        return run_html(title, self.fetch, [layer.name for layer in self.layers], self.verdicts)

    def verify(self) -> int:
        """Read all parts and verify their checksums.

        Returns:
            The number of rows in the parts.

        Raises:
            StoreError: A part is damaged.
        """
        count = 0
        for folder in self.folders:
            count += sum(folder.count(part.name) for part in folder.parts())
        return count

    def merge(self) -> None:
        """Merge the parts into one part for each attempt and rank."""
        for folder in self.folders:
            merge_parts(folder)
        self.refresh()

    def _check_recorded(self, asked: dict[str, str]) -> None:
        """Raise an error for the first name that no row has."""
        for column, word in asked.items():
            known = [str(row[0]) for row in self.fetch(f"select distinct left({column}, 200) from rows limit 20000")]
            if word in known:
                continue
            close = nearest(word, known, 1)
            remedy = f"use the nearest {column}, {close[0]!r}" if close else f"use one of {', '.join(known[:6])}"
            raise StoreError(f"nothing is recorded under the {column} {word!r}", remedy=remedy)

    def _nothing_recorded(self, hook: str, target: str, name: str, rank: int) -> StoreError:
        columns = "left(hook, 200), left(target, 200), left(name, 200)"  # a comparison of long names is slow
        there = self.fetch(f"select distinct {columns} from rows limit 20000")
        for place, word in enumerate((hook, target, name)):
            there = [row for row in there if row[place] == word] or there
        keys = ["/".join(map(str, row)) for row in there]  # a damaged part may have no names
        if f"{hook}/{target}/{name}" in keys:
            of = "from rows where hook = ? and target = ? and name = ?"
            found = self.fetch(f"select distinct rank {of} order by rank limit 4", hook, target, name)
            return StoreError(
                f"rank {rank} recorded nothing under {hook}/{target}/{name}",
                remedy=f"pass the rank that recorded it: rank={found[0][0]}" if found else None,
            )
        close = nearest("/".join((hook, target, name)), keys)
        return StoreError(
            f"nothing is recorded under {hook}/{target}/{name}",
            remedy=f"use the nearest name, {close[0]}" if close else f"use a recorded name: {', '.join(keys[:6])}",
        )


def no_run_in(path: str, remedy: str) -> StoreError:
    """Return the error for a path without a recorded run."""
    place = Path(path)
    try:
        if place.exists() or "://" in path:
            return StoreError(f"there is no recorded run in {path}", remedy=remedy)
        beside = [one.name for one in place.parent.iterdir() if one.is_dir()]
    except OSError:
        beside = []
    close = nearest(place.name, beside, 1)
    return StoreError(
        f"the folder {path} does not exist",
        remedy=f"pass the nearest folder, {place.parent / close[0]}" if close else remedy,
    )


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"


def open_run(*paths: str | os.PathLike[str], limits: ReadLimits = DEFAULT_LIMITS) -> Run:
    """Open one or more run folders that a `th.Store` wrote.

    A run can be opened while it is still being recorded.

    Args:
        *paths: Run folders, as paths or as URIs that Arrow supports.
        limits: The largest folder that is read. A folder may come from an untrusted source.

    Returns:
        A `Run` that reads all the folders.

    Raises:
        StoreError: DuckDB or pyarrow is not installed, a folder contains no recorded run, a file in it cannot be read,
            or the folder exceeds a limit.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import tenterhook as th
        >>> folder = tempfile.mkdtemp()
        >>> model = torch.nn.Linear(1, 1, bias=False)
        >>> hook = th.Hook("grads", on="**", at="grad", do=th.stats())
        >>> with th.attach(model, hook, sinks=th.Store(folder)):
        ...     for x in (1.0, 2.0):
        ...         model.zero_grad()
        ...         model(torch.tensor([[x]])).sum().backward()
        >>> th.open_run(folder).curve("grads", "weight", "norm")
        Curve(steps=[0, 1], values=[1.0, 2.0])
    """
    return Run(*paths, limits=limits)
