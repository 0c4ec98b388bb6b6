"""Make saved states whose entries have valid digests and absurd content."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tests.support.keep.forged_headers import CONTROLS, PAST
from tests.support.keep.forger import PREFIX, Change, Forger, as_bytes, honest, leave_out, put, say, together
from tests.support.keep.hostile_plans import CODE


def tensors() -> Iterator[tuple[str, Change]]:
    yield from _misshapen()
    yield from _ledgers()
    yield from _targets()
    yield from _packed()
    yield from _free("free", "index", "m")
    yield from _free("pending_free", "pending_index", "d")
    yield from _generators()
    yield from _partials()


def _honest(key: str) -> Tensor:
    return honest()[PREFIX + key]


#: an entry of each kind
KINDS = (
    "ledger/m", "targets/m", "state/z/mean", "state/d/mean", "pending/d/mean", "pending/t/mean", "partial/p/norm",
    "fired/p", "free/m/float32/1/momentum", "index/m/float32/1/momentum", "generator/n/cpu/0",
    "pending_free/d/float32/1/last", "pending_index/d/float32/1/last",
)  # fmt: skip


def _misshapen() -> Iterator[tuple[str, Change]]:
    for key in KINDS:
        true = _honest(key)
        for dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool,
                      torch.float16, torch.float8_e4m3fn):  # fmt: skip
            if dtype != true.dtype:
                yield f"{key} in {dtype}", put(key, true.to(dtype))
        yield f"{key} twice as long", put(key, torch.cat([true, true]))
        yield f"{key} emptied", put(key, true[:0].clone())
        yield f"{key} in a column", put(key, true[..., None].clone())
        yield f"{key} in a row", put(key, true[None].clone())
        yield f"{key} as a scalar", put(key, true.reshape(-1)[0].clone())
        yield f"{key} without end", put(key, torch.zeros(9, 0, 1 << 40, dtype=true.dtype))


def _ledgers() -> Iterator[tuple[str, Change]]:
    true = _honest("ledger/m")
    for row in range(len(true)):
        for value in (-2, PAST, -(1 << 63)):
            yield f"ledger row {row} holds {value}", put("ledger/m", _filled(true, row, value))
    for row, value in ((7, 2), (8, 0), (7, 1 << 40), (7, -1)):
        yield f"ledger row {row} counts to {value}", put("ledger/m", _filled(true, row, value))
    yield "ledger of kinds swapped", put("ledger/m", torch.cat([true[:7], true[7:8].flip(1), true[8:]]))
    yield "ledger turned", put("ledger/m", true.t().contiguous())
    yield "ledger of a row less", put("ledger/m", true[:-1].clone())
    yield "ledger of a row more", put("ledger/m", torch.cat([true, true[:1]]))
    yield "ledger of a column less", put("ledger/m", true[:, :1].contiguous())
    yield "ledger of a column more", put("ledger/m", torch.cat([true, true[:, :1]], 1))


def _filled(ledger: Tensor, row: int, value: int) -> Tensor:
    made = ledger.clone()
    made[row] = value
    return made


def _targets() -> Iterator[tuple[str, Change]]:
    text = bytes(_honest("targets/m").tolist())
    first, second = text.split(b"\0")
    for name, data in {
        "one less": first, "one more": text + b"\0x", "one twice": first + b"\0" + first, "others": b"a\0b",
        "without names": b"\0", "one without a name": first + b"\0", "not UTF-8": b"\xff\0\xfe", "+NUL": text + b"\0",
        "half a pair": b"\xed\xa0\x80\0" + second, "paths": b"../../etc/passwd\0/etc", "indented": b" " + text,
        "in capitals": text.upper(), "nothing but NUL": b"\0" * 8, "in disorder": second + b"\0" + first,
        "code": f"{CODE[0]}\0{CODE[1]}".encode(), "long": b"a" * 100_000 + b"\0" + b"b" * 100_000,
    }.items():  # fmt: skip
        yield f"targets {name}", put("targets/m", as_bytes(data))
    for control in (*CONTROLS[1:], "\ud800", ""):
        data = f"a{control}" if control else ""
        yield f"a tap called {data!r}", put("targets/t", as_bytes(data.encode("utf-8", "surrogatepass")))


def _packed() -> Iterator[tuple[str, Change]]:
    for kind, hook in (("state", "z"), ("pending", "d")):
        true = _honest(f"{kind}/{hook}/mean")
        yield f"{kind} under an unknown name", put(f"{kind}/{hook}/code", true)
        yield f"{kind} under no name", put(f"{kind}/{hook}", true)
    yield "state of an action that has none", put("state/m/mean", torch.zeros(2, dtype=torch.float64))
    yield "one of three states missing", leave_out("state/z/var")


def _free(free: str, index: str, hook: str) -> Iterator[tuple[str, Change]]:
    """Yield wrong joined tensors, and wrong indexes that split them."""
    group = next(key for key in honest() if f"/{free}/{hook}/float32/1/" in key).partition(f"/{free}/")[2]
    flat, cuts = f"{free}/{group}", f"{index}/{group}"
    values, places = _honest(flat), _honest(cuts)
    for slot in (-1, 2, 1 << 40, -(1 << 63)):
        yield f"{index} of slot {slot}", put(cuts, torch.tensor([[slot, 2]]))
    for size in (-1, -2, 0, 1, 3, 1 << 40, (1 << 63) - 1):
        yield f"{index} of size {size}", put(cuts, torch.tensor([[0, size]]))
    for rows in ([[0, 1], [0, 1]], [[0, 4], [1, -2]], [[0, 1], [1, 1], [0, 0]], [[0], [1]], [[0, 2, 1]], [0, 2], [[]]):
        yield f"{index} of {rows}", put(cuts, torch.tensor(rows, dtype=torch.int64))
    yield f"{index} missing", leave_out(cuts)
    yield f"{free} missing", leave_out(flat)
    yield f"{free} cut short", put(flat, values[:1].clone())
    for label in ("float32/0/x", "float32/2/x", "float32/-1/x", "float32/01/x", "float32/\u0661/x", "float32/x/x",
                  "float32/17/x", "float32/99999/x", "float32//x", "float32/1", "float32", "", "float64/1/x",
                  "object/1/x", "torch.float32/1/x", "quint8/1/x", f"{CODE[0]}/1/x", "float32/1/\0",
                  "float32/1/\x1b[2J"):  # fmt: skip
        yield (
            f"{free} called {label!r}",
            together(put(f"{free}/{hook}/{label}", values), put(f"{index}/{hook}/{label}", places)),
        )
    for label, sizes in {"float32/3/x": [0, 1 << 62, 1 << 62], "float32/16/x": [*[1 << 60] * 15, 0]}.items():
        yield (
            f"{index} of nothing, {len(sizes)} times without end",
            put(f"{index}/{hook}/{label}", torch.tensor([[0, *sizes]])),
        )
    again = f"{hook}/float64/1/{group.rpartition('/')[2]}"
    yield (
        f"{free} twice, in two dtypes",
        together(put(f"{free}/{again}", values.double()), put(f"{index}/{again}", places)),
    )


def _generators() -> Iterator[tuple[str, Change]]:
    key = "generator/n/cpu/0"
    true = _honest(key)
    for name, other in {
        "zeros": torch.zeros_like(true), "ones": torch.full_like(true, 255), "a byte less": true[:-1].clone(),
        "a byte more": torch.cat([true, true[:1]]), "one byte": true[:1].clone(), "its own, backwards": true.flip(0),
        "a pattern": torch.arange(len(true)).to(torch.uint8),
    }.items():  # fmt: skip
        yield f"generator of {name}", put(key, other)
    for device in ("cuda", "cuda:0", "meta", "cpu:0", "CPU", "", "xpu", "\x1b[2J", "a" * 10_000, *CODE[:4]):
        yield f"generator on {device[:20]!r}", put(f"generator/n/{device}/0", true)
    for seed in (
        "",
        "x",
        "--1",
        "00",
        "+1",
        "-0",
        "1.0",
        "1e3",
        "0x1",
        "\u0661",
        "9" * 30,
        "9" * 10_000,
        "\x1b[2J",
        CODE[0],
    ):
        yield f"generator of seed {seed[:20]!r} of {len(seed)}", put(f"generator/n/cpu/{seed}", true)


def _partials() -> Iterator[tuple[str, Change]]:
    norm, fired = _honest("partial/p/norm"), _honest("fired/p")
    yield "a partial too wide", put("partial/p/norm", norm.expand(-1, 2).contiguous())
    yield "a partial missing", leave_out("partial/p/norm")
    yield "an unknown partial", put("partial/p/code", norm)
    yield "partials of a hook that keeps none", put("partial/m/norm", norm)
    yield "partials of a modifier", together(put("partial/z/norm", norm[:1].clone()), put("fired/z", fired[:1].clone()))
    yield "fired missing", leave_out("fired/p")
    yield "fired of a hook that keeps none", put("fired/m", fired)
    yield "fired twice", put("fired/p", fired * 2)
    yield "fired 255 times", put("fired/p", fired * 255)


def parameters() -> Iterator[tuple[str, Change]]:
    """Yield states with another tensor parameter, which must not replace that of the rig."""
    true = _honest("tensor/v")
    for name, other in {
        "another": true + 1, "in float64": true.double(), "in integers": true.int(), "longer": torch.cat([true, true]),
        "in a row": true[None].clone(), "a scalar": true[0].clone(),
    }.items():  # fmt: skip
        yield f"tensor {name}", put("tensor/v", other)


def crowds() -> Iterator[tuple[str, Change]]:
    """Yield states that would be valid if they were smaller."""
    for count in (4097, 100_000, 10**6):
        yield f"{count} targets", together(put("ledger/m", _ledger(count)), put("targets/m", _names(count)))
    for count in (1000, 4096):
        yield f"{count} targets of every hook", together(*(
            together(put(f"ledger/{id}", _ledger(count, 10 if id in "sp" else 9)), put(f"targets/{id}", _names(count)))
            for id in Forger().said["hooks"]))  # fmt: skip
    yield "a million targets and one name", put("ledger/m", _ledger(10**6))
    yield "a million names and one target", put("targets/m", _names(10**6))
    for name, key, dtype in (
        ("a target", "targets/z", torch.uint8), ("a tap", "targets/t", torch.uint8), ("fired", "fired/p", torch.uint8),
        ("a generator", "generator/n/cpu/0", torch.uint8), ("a state", "state/z/mean", torch.float64),
        ("a free state", "free/m/float32/1/momentum", torch.float32), ("a ledger", "ledger/m", torch.int64),
        ("an index", "index/m/float32/1/momentum", torch.int64), ("a partial", "partial/p/norm", torch.float64),
        ("a ledger without a hook", "ledger/nobody", torch.int64),
    ):  # fmt: skip
        yield (
            f"{name} of 64 MiB",
            put(key, lambda dtype=dtype: torch.full(((1 << 26) // dtype.itemsize,), 97, dtype=dtype)),
        )
    one = torch.zeros(1, dtype=torch.float64)
    yield "8000 states", together(*(put(f"state/z/{i}", one) for i in range(8000)))
    yield "8000 ledgers without hooks", together(*(put(f"ledger/{i}", one) for i in range(8000)))
    yield "5000 kinds", say("hooks", "m", "kinds", to=[f"float32[{i}]" for i in range(5000)])
    yield "100000 reasons to be muted", say("hooks", "m", "reasons", to=["muted"] * 100_000)
    yield "100000 reasons to skip", say("hooks", "m", "skipped", to=["x"] * 100_000)
    yield "one storage behind 500 entries", _aliased


def _ledger(sites: int, rows: int = 9) -> Callable[[], Tensor]:
    def make() -> Tensor:
        made = torch.zeros(rows, sites, dtype=torch.int64)
        made[8] = -1  # no target is muted
        return made

    return make


def _names(count: int) -> Callable[[], Tensor]:
    return lambda: as_bytes("\0".join(map(str, range(count))).encode())


def _aliased(forger: Forger) -> None:
    """Add 500 entries of 1 MiB that share one storage in the file, but take 500 MiB when copied."""
    shared = torch.zeros(1 << 18)
    for i in range(500):
        forger.tensors[f"{PREFIX}free/m/float32/1/x{i}"] = shared
        forger.tensors[f"{PREFIX}index/m/float32/1/x{i}"] = torch.tensor([[0, 1 << 18]])
