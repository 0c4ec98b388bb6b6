"""Make saved states that must be refused: damaged, mixed up, too large, or with odd tensors."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from tests.support.keep.forged_headers import headers
from tests.support.keep.forged_tensors import crowds, parameters, tensors
from tests.support.keep.forger import HEADER, PREFIX, Forger, as_bytes, canonical, digest_of, forged, honest, sealed
from tests.support.keep.hostile_plans import Artefact, containers


def states() -> Iterator[Artefact]:
    for name, make in [*_not_states(), *_damaged(), *_mixed()]:
        yield Artefact(f"damage: {name}", {"state": make})
    for key in STRAY:
        make = lambda key=key: {**honest(), f"tenterhook/{key}": torch.zeros(1)}
        yield Artefact(f"damage: an entry called {key!r}", {"whole": make})
    for name, make in [*_header_bytes(), *_header_texts()]:
        yield Artefact(f"header: {name}", {"state": make})
    for name, make in _odd_tensors():
        yield Artefact(f"tensor: {name}", {"torch": make, "memory": make})
    for name, change in [*headers(), *tensors()]:
        yield Artefact(f"forged: {name}", {"state": forged(change)})
    for name, change in parameters():
        yield Artefact(f"forged: {name}", {"loaded": forged(change)})
    for name, change in crowds():
        yield Artefact(f"bomb: {name}", {"torch": forged(change)}, heavy=True)
    for name, change in _metadata():
        yield Artefact(f"metadata: {name}", {"metadata": lambda change=change: change}, heavy="million" in name)
    for name, make in _bombs():
        yield Artefact(f"bomb: {name}", {"torch": make}, heavy=True)


# -- damage, with the old digests --------------------------------------------------------------------------------------


#: keys that do not belong to a rank; DcpState does not read them
STRAY = ("", "header", "x", "rank", "rank/x", "rank-1/x", "rank00/x", "rank\u0660/x", "rank0x/x", "rank1.0/x",
         "Rank1/x", "rank 1/x", "../rank0/x", "rank0", "state/z/mean")  # fmt: skip


def _not_states() -> Iterator[tuple[str, Callable[[], Any]]]:
    for value in ([], "state", 1, None, True, torch.zeros(3), (), b"x"):
        yield f"a {type(value).__name__} for a state", lambda value=value: value
    yield "a header in a list for a state", lambda: [honest()[HEADER]]
    yield "one level below", lambda: {"hooks": dict(honest())}
    yield "only a header", lambda: {HEADER: honest()[HEADER]}
    yield "no header", lambda: {k: v for k, v in honest().items() if k != HEADER}
    yield "a prefix alone", lambda: {PREFIX: torch.zeros(1)}
    yield "an entry too many", lambda: {**honest(), f"{PREFIX}more": torch.zeros(1)}
    yield "an entry too many, empty", lambda: {**honest(), f"{PREFIX}state/z/more": torch.zeros(0)}
    yield "two headers", lambda: {**honest(), HEADER + "/1": honest()[HEADER]}
    for value in ("x", b"x", 1, 1.5, None, True, [1], {"a": 1}, (1, 2)):
        yield f"a {type(value).__name__} for a header", lambda value=value: {**honest(), HEADER: value}
        yield f"a {type(value).__name__} for an entry", lambda value=value: {**honest(), _some("ledger"): value}


def _some(kind: str) -> str:
    return next(key for key in honest() if f"/{kind}/" in key)


def _damaged() -> Iterator[tuple[str, Callable[[], Any]]]:
    for key, tensor in honest().items():
        yield f"{key} with a bit flipped", lambda key=key, tensor=tensor: {**honest(), key: _flipped(tensor)}
        yield f"{key} missing", lambda key=key: {k: v for k, v in honest().items() if k != key}


def _flipped(tensor: Tensor) -> Tensor:
    made = tensor.clone()
    raw = made.view(-1).view(torch.uint8)
    raw[len(raw) // 2] ^= 4
    return made


def _mixed() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield states with parts of another step, another run, another hook or another rank."""
    for key, tensor in honest().items():
        for name, other in (("step", honest(steps=4)), ("run", honest(width=3))):
            if key in other and not torch.equal(tensor, other[key]):
                yield f"{key} of another {name}", lambda key=key, other=other: {**honest(), key: other[key]}
        twin = next((k for k, t in honest().items() if k > key and t.shape == tensor.shape and t.dtype == tensor.dtype
                     and not torch.equal(t, tensor)), None)  # fmt: skip
        if twin:
            yield f"{key} and {twin} swapped", lambda a=key, b=twin: {**honest(), a: honest()[b], b: honest()[a]}
    yield "every part of another step", lambda: {**honest(steps=4), HEADER: honest()[HEADER]}
    yield "every part of another rank", lambda: {k.replace("rank0", "rank1"): v for k, v in honest().items()}


# -- the header as bytes and as text -----------------------------------------------------------------------------------


def _header_bytes() -> Iterator[tuple[str, Callable[[], Any]]]:
    whole = bytes(honest()[HEADER].tolist())
    for name, data in containers():
        yield name, lambda data=data: {**honest(), HEADER: as_bytes(data)}
        yield f"sealed {name}", lambda data=data: {**honest(), HEADER: as_bytes(sealed(data))}
    for cut in range(1, len(whole), len(whole) // 20):
        yield f"cut at {cut}", lambda cut=cut: {**honest(), HEADER: as_bytes(whole[:cut])}
    for name, data in {"BOM first": b"\xef\xbb\xbf" + whole, "space first": b" " + whole, "space last": whole + b" ",
                       "line last": whole + b"\n", "NUL last": whole + b"\0", "twice": whole + whole,
                       "key before": b'{"a":1,' + whole[1:], "key after": whole[:-1] + b',"z":1}',
                       "digest twice": b'{"digest":"x",' + whole[1:], "a list": b"[" + whole + b"]",
                       "digest in capitals": whole[:11] + whole[11:43].upper() + whole[43:],
                       "digest of another": whole[:11] + b"0" * 32 + whole[43:], "digest a number": b'{"digest":1,'
                       + whole[45:], "no digest": b"{" + whole[45:], "no state": whole[:44] + b"}",
                       "state null": whole[:45] + b'"state":null,"tenterhook":1}', "no format": whole[:-16] + b"}",
                       "format first": b'{"tenterhook":1,' + whole[1:-16] + b"}"}.items():  # fmt: skip
        yield name, lambda data=data: {**honest(), HEADER: as_bytes(data)}

    text = Forger().text()
    for version in (0, 2, -1, 1 << 40, 1 << 70, "1", 1.5, True, None, [1]):
        yield f"format {version!r}", lambda version=version: {**honest(), HEADER: as_bytes(sealed(text, version))}


def _header_texts() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield headers with a valid digest that are not canonical, repeat keys, or have invalid numbers."""
    text = Forger().text()
    step = '"step":3'
    assert step in text
    changed = {
        "spaces": text.replace(",", ", "), "a space": text.replace(":", ": ", 1), "a tab": text.replace("{", "{\t", 1),
        "keys in disorder": json.dumps(dict(reversed(json.loads(text).items())), separators=(",", ":")),
        "an escape": text.replace('"clock"', '"cl\\u006fck"'), "a slash escaped": text.replace("/", "\\/", 1),
        "clock twice": text.replace('"clock"', f'"clock":{canonical(Forger().said["clock"])},"clock"'),
        "step twice": text.replace(step, f'{step},"step":4'), "plan twice": text.replace('"plan"', '"plan":{},"plan"'),
        "an unknown field": text.replace("{", '{"a":1,', 1), "an unknown last field": text[:-1] + ',"zz":1}',
        "trailing comma": text.replace("}", ",}", 1), "single quotes": text.replace('"', "'"),
        "nested deep": text.replace(step, f'"step":{"[" * 900}3{"]" * 900}'),
        "nested deeper": text.replace(step, f'"step":{"[" * 100_000}'),
        "unknown and deep": text.replace("{", '{"a":' + "[" * 100_000 + "]" * 100_000 + ",", 1),
        "plan deep": text.replace('"plan":', '"plan":' + "[" * 100_000, 1),
        "a megabyte of spaces": text.replace(":", ":" + " " * 1_000_000, 1),
        "a megabyte of lists": text.replace("{", '{"a":[' + "[]," * 300_000 + "[]],", 1),
    }  # fmt: skip
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "3.0", "3.5", "03", "+3", "-1", "-0", "3e0", '"3"', "true",
                   "null", "[]", "9007199254740993", "18446744073709551616", "9" * 400, "9" * 5000, "-" + "9" * 5000,
                   "9" * 100_000):  # fmt: skip
        changed[f"step {number[:24]} of {len(number)}"] = text.replace(step, f'"step":{number}')
    for name, altered in changed.items():
        assert altered != text
        yield f"sealed, with {name}", lambda altered=altered: {**honest(), HEADER: as_bytes(sealed(altered))}
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b"\x1b"):
        raw = text.encode().replace(b'"cpu":"', b'"cpu":"' + bad)
        yield f"sealed, with bytes {bad!r}", lambda raw=raw: {**honest(), HEADER: as_bytes(sealed(raw))}
    for escape in ("\\ud800", "\\udc00\\ud800", "\\u0000", "\\u001b", "\\b", "\\x", "\\u12"):
        altered = text.replace('"cpu":"', f'"cpu":"{escape}')
        yield f"sealed, with {escape}", lambda altered=altered: {**honest(), HEADER: as_bytes(sealed(altered))}


# -- tensors of another kind -------------------------------------------------------------------------------------------


class Other(Tensor):
    """Derive from Tensor, since a subclass could return anything."""


def _odd_tensors() -> Iterator[tuple[str, Callable[[], Any]]]:
    odd: dict[str, Callable[[Tensor], Any]] = {
        "meta": lambda t: t.to("meta"),
        "sparse": lambda t: t.to_sparse(),
        "compressed sparse": _compressed,
        "quantized": lambda t: torch.quantize_per_tensor(t.float(), 1.0, 0, torch.quint8),
        "strided": lambda t: torch.stack([t, t], -1)[..., 0],
        "turned": lambda t: t.reshape(-1, 1).expand(-1, 2).contiguous().t(),
        "expanded": lambda t: t.reshape(-1)[:1].expand(t.numel()).view(t.shape),
        "expanded to 10^9": lambda t: t.reshape(-1)[:1].expand(10**9),
        "expanded to 10^9 in two dimensions": lambda t: t.reshape(-1)[:1].expand(10**9, 1).reshape(10**9, 1),
        "a subclass": lambda t: t.as_subclass(Other),
        "nested": lambda t: torch.nested.nested_tensor([t, t]),
        "negated": lambda t: torch._neg_view(t.float()),
        "conjugated": lambda t: torch.complex(t.float(), t.float()).conj(),
        "mkldnn": lambda t: t.float().to_mkldnn(),
    }  # fmt: skip
    for key in (HEADER, _some("ledger"), _some("targets"), _some("state"), _some("free"), _some("generator")):
        for name, make in odd.items():
            yield f"{key} {name}", lambda key=key, make=make: _with_odd(key, make)


def _compressed(t: Tensor) -> Tensor:
    return t.reshape(1, -1).to_sparse_csr()


def _with_odd(key: str, make: Callable[[Tensor], Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that these kinds are in beta
        odd = make(honest()[key])
        if key == HEADER:
            return {**honest(), HEADER: odd}
        forger = Forger()
        forger.tensors.pop(key)
        nested = odd.is_nested
        lie = {"dtype": str(odd.dtype).removeprefix("torch."), "shape": [2] if nested else list(odd.shape)}
        forger.lies[key] = {**lie, "digest": digest_of(b"")}
        return {**forger.seal(), key: odd}


# -- bombs -------------------------------------------------------------------------------------------------------------


def _bombs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield states that are far too large. The container may refuse them too."""
    one = torch.zeros(1)
    for size in (1 << 20, 1 << 23, 1 << 26):
        yield f"a header of {size >> 20} MiB", lambda size=size: {**honest(), HEADER: as_bytes(b" " * (size + 1))}
    yield "a million entries", lambda: {**honest(), **{f"{PREFIX}{i}": one for i in range(10**6)}}
    yield "a million entries and no header", lambda: {f"{PREFIX}{i}": one for i in range(10**6)}
    yield "a million keys of another program", lambda: {**{f"{i}": one for i in range(10**6)}, HEADER: one}
    yield "a million entries of lists", lambda: {**honest(), **{f"{PREFIX}{i}": [] for i in range(10**6)}}
    yield "a key of 16 MiB", lambda: {**honest(), PREFIX + "a" * (1 << 24): one}
    for i, inner in enumerate(('{"a":' * 100_000, "[" * (1 << 19), "[[]," * (1 << 17), "9" * (1 << 19),
                               '"' + "\\u0000" * (1 << 17) + '"', '{"' + '":1,"'.join(map(str, range(50_000))) + '":1}',
                               '{"tenterhook":1,"entries":{' + '"a":{},' * 100_000 + "}}")):  # fmt: skip
        yield f"a sealed header of 1 MiB, number {i}", lambda inner=inner: {HEADER: as_bytes(sealed(inner))}


# -- metadata of DCP: a harmless pickle with false content -------------------------------------------------------------


def _metadata() -> Iterator[tuple[str, Callable[[Metadata], None]]]:
    """Yield metadata of entries that do not fit into memory, or that are not tensors."""
    for key in (HEADER, _some("ledger"), _some("free")):
        yield f"{key} in bytes", _stored(key, BytesStorageMetadata())
        yield f"{key} in nothing", _stored(key, None)
        for size in ([1 << 50], [1 << 62], [1 << 40, 1 << 40], [0, 1 << 62, 1 << 62], [1 << 21] * 4):
            yield f"{key} of size {size}", _stored(key, _claimed(size))
        for dtype in (torch.quint8, torch.complex32, None, "uint8", "os.system"):
            yield f"{key} of dtype {dtype}", _stored(key, _claimed([4], dtype))
    yield "no header", lambda metadata: _drop(metadata, f"hooks.{HEADER}")
    yield "nothing", lambda metadata: metadata.state_dict_metadata.clear()
    yield "a header of 2 MiB", _stored(HEADER, _claimed([1 << 21]))
    for name, keys in {
        "two rigs": [f"more.{HEADER}"], "a rig called ESC": [f"\x1b[2J.{HEADER}"], "a rig of a long name":
        ["a" * (1 << 20) + HEADER], "a thousand rigs": [f"{i}.{HEADER}" for i in range(1000)],
    }.items():  # fmt: skip
        yield name, lambda metadata, keys=keys: metadata.state_dict_metadata.update(dict.fromkeys(keys, _claimed([1])))
    yield (
        "a million entries",
        lambda metadata: metadata.state_dict_metadata.update(
            dict.fromkeys((f"hooks.{PREFIX}{i}" for i in range(10**6)), _claimed([1]))
        ),
    )
    yield "an entry called ESC", _stored(f"{PREFIX}\x1b[2J", BytesStorageMetadata())


def _drop(metadata: Metadata, key: str) -> None:
    del metadata.state_dict_metadata[key]


def _stored(key: str, claimed: Any) -> Callable[[Metadata], None]:
    def change(metadata: Metadata) -> None:
        metadata.state_dict_metadata[f"hooks.{key}"] = claimed

    return change


def _claimed(size: list[int], dtype: Any = torch.uint8) -> TensorStorageMetadata:
    return TensorStorageMetadata(TensorProperties(dtype=dtype), torch.Size(size), [])
