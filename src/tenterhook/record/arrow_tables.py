"""Convert recorded rows to Arrow tables directly from tensor memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from tenterhook.record.rows import Batch
from tenterhook.record.run_folder.columns import schema

if TYPE_CHECKING:
    import pyarrow as pa


def as_arrow(batches: Sequence[Batch]) -> pa.Table:
    """Return all rows of the batches as one Arrow table.

    Arrow reads the tensors' memory directly, because converting row by row would delay the training thread.
    """
    import pyarrow as pa

    alike: dict[tuple[Any, ...], list[_Numbers]] = {}
    for batch in batches:
        for hook, table in batch.tables.items():
            (widths, numbers), slots = table.collect(), torch.tensor(table.fired, dtype=torch.long, device="cpu")
            key = (hook, batch.rank, id(table.targets), tuple(widths.items()))
            alike.setdefault(key, []).append(_Numbers(batch.step, table.targets, widths, slots, numbers[slots]))
    parts = [_tables_as_arrow(hook, rank, found) for (hook, rank, *_), found in alike.items()]
    rows = list(_single_rows(batches))
    if rows:
        parts.append(pa.table(list(map(list, zip(*rows, strict=True))), schema=schema()))
    return pa.concat_tables([schema().empty_table(), *parts]).unify_dictionaries()


def _single_rows(batches: Sequence[Batch]) -> Iterator[tuple[Any, ...]]:
    """Yield the emitted rows, then a row for each batch that reports dropped rows. The columns are in schema order."""
    for batch in batches:
        for r in batch.emitted:
            yield r.step, r.rank, r.hook, r.target, r.name, r.value, None, r.call, r.leaf
    for batch in batches:
        if batch.dropped:
            lost = float(batch.dropped)
            yield batch.step, batch.rank, "tenterhook", "recorder", "dropped", lost, None, None, None


class _Numbers(NamedTuple):
    """One hook's numbers for one step, with one row for each target that fired."""

    step: int
    targets: Sequence[str]
    widths: dict[str, int]
    slots: Tensor
    rows: Tensor


def _tables_as_arrow(hook: str, rank: int, found: Sequence[_Numbers]) -> pa.Table:
    """Return one hook's rows for several steps, all with the same targets and names."""
    import pyarrow as pa

    widths, targets = found[0].widths, found[0].targets
    numbers = torch.cat([one.rows for one in found])
    fired = torch.tensor([len(one.slots) for one in found], device="cpu")
    steps = torch.tensor([one.step for one in found], device="cpu").repeat_interleave(fired)
    places, at = {}, 0
    for name, width in widths.items():
        places[name] = (at, width)
        at += width or 1
    single = [name for name, width in widths.items() if not width]
    many = [name for name, width in widths.items() if width]
    names = [*single, *many]
    sites, rows = len(numbers), len(numbers) * len(names)

    def words(texts: Sequence[str], index: Tensor) -> pa.Array:
        return pa.DictionaryArray.from_arrays(_array(index.to(torch.int32), pa.int32()), pa.array(texts, pa.string()))

    values = numbers[:, [places[name][0] for name in single]].T.reshape(-1)
    lists = [numbers[:, at : at + width] for at, width in (places[name] for name in many)]
    no_lists = torch.zeros(len(single) * sites + 1, dtype=torch.int32, device="cpu")
    lengths = torch.cat(
        [no_lists, *(torch.full((sites,), one.shape[1], dtype=torch.int32, device="cpu") for one in lists)]
    )
    listed = pa.ListArray.from_arrays(
        _array(lengths.cumsum(0).to(torch.int32), pa.int32()),
        _array(
            torch.cat([torch.zeros(0, dtype=torch.float64, device="cpu"), *(one.reshape(-1) for one in lists)]),
            pa.float64(),
        ),
        mask=pa.array([True] * (len(single) * sites) + [False] * (len(many) * sites), type=pa.bool_()),
    )
    return pa.table(
        [
            _array(steps.repeat(len(names)), pa.int64()),
            pa.repeat(pa.scalar(rank, pa.int32()), rows),
            words([hook], torch.zeros(rows, device="cpu")),
            words(targets, torch.cat([one.slots for one in found]).repeat(len(names))),
            words(names, torch.arange(len(names), device="cpu").repeat_interleave(sites)),
            pa.concat_arrays([_array(values, pa.float64()), pa.nulls(len(many) * sites, pa.float64())]),
            listed,
            pa.nulls(rows, pa.int32()),
            pa.nulls(rows, pa.int32()),
        ],
        schema=schema(),
    )


def _array(tensor: Tensor, kind: pa.DataType) -> pa.Array:
    """Return an Arrow array that shares a tensor's memory and keeps the tensor alive."""
    import pyarrow as pa

    tensor = tensor.contiguous()
    memory = pa.foreign_buffer(tensor.data_ptr(), tensor.numel() * tensor.element_size(), base=tensor)
    return pa.Array.from_buffers(kind, tensor.numel(), [None, memory])
