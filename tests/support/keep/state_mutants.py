"""Mutate saved states: damage them, or change them and update the header."""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

import tenterhook as th
from tenterhook.rig.saved.format import DTYPES, NAMES, OF_A_HOOK, SizeLimits, as_bytes, as_tensor, digest, read
from tests.support.keep.odd_trees import NUMBERS, ODD, WORDS, bend, bent_word
from tests.support.keep.specimen import PARTS, Specimen, attached, same, specimen

RANK = "tenterhook/rank0/"
HEADER = RANK + "header"


class Seed:
    """Hold a rig and its saved state, taken apart."""

    def __init__(self, name: str, made: Specimen) -> None:
        self.name = name
        self.made = made
        self.rig = made.rig
        self.hooks = [hook.id for hook in made.plan]
        self.state = made.rig.state_dict()
        self.header = as_bytes(self.state[HEADER])
        self.said = bytes(msgspec.json.decode(self.header, type=dict[str, msgspec.Raw])["state"])
        self.tensors = {key: tensor for key, tensor in self.state.items() if key != HEADER}

    def attach(self) -> None:
        th.detach(self.made.model)
        self.rig = attached(self.made.model, self.made.optimizer, self.made.plan)


_seeds: dict[str, Seed] = {}


def seeds() -> dict[str, Seed]:
    """Return the seeds, which are made once per process. The last seed has the parts of all others."""
    if not _seeds:
        for name in (*PARTS, "whole"):
            _seeds[name] = Seed(name, specimen(*([name] if name in PARTS else PARTS)))
        gc.collect()
        gc.freeze()  # otherwise a garbage collection over all of torch would be measured as the time of an input
    return _seeds


class Load(NamedTuple):
    """Describe a state to load into the rig of a seed, or to restore on its model."""

    seed: str
    state: dict[str, Any]
    options: dict[str, Any]
    sealed: bool
    restored: bool = False


def seal(said: Any, *, spread: bool = False) -> Tensor:
    """Return a header with this content and a valid digest; with `spread` it is not canonical."""
    try:
        text = msgspec.json.encode(said, order="sorted")
    except (UnicodeEncodeError, OverflowError):
        written = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        text = written.encode("utf-8", "surrogatepass")
    text = text.replace(b",", b" ,") if spread else text
    return as_tensor(b'{"digest":"%s","state":%s,"tenterhook":1}' % (digest(text).encode(), text))


def vouch(said: Any, key: str, tensor: Any) -> None:
    """Describe an entry correctly in the header."""
    if not isinstance(tensor, Tensor):
        return
    plain = tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized
    small = plain and tensor.numel() < 1 << 20
    said["entries"][key.removeprefix(RANK)] = {
        "dtype": NAMES.get(tensor.dtype, "float32"),
        "shape": list(tensor.shape),
        "digest": digest(tensor.detach().clone(memory_format=torch.contiguous_format)) if small else "0" * 32,
    }


def odd_entry(r: Random) -> Any:
    """Return an object that is not a plain tensor, or only just."""
    strange: Sequence[Callable[[], Any]] = (
        lambda: torch.zeros(1).expand(1 << 40),
        lambda: torch.zeros(3, 3).t()[:, 1:],
        lambda: torch.zeros(2, 2).to_sparse(),
        lambda: torch.zeros(2, device="meta"),
        lambda: torch.nn.Parameter(torch.zeros(2)),
        lambda: torch.zeros(2, dtype=torch.complex64).conj(),
        lambda: torch.zeros(2, dtype=torch.complex64).conj().imag,
        lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8),
        lambda: torch.zeros(()),
        lambda: torch.zeros(0, 1 << 40),
        lambda: torch.zeros(3, 65)[:1, 0],
        lambda: torch.zeros(3, 65)[:0, 0],
        lambda: r.choice(ODD),
        lambda: b"x",
    )
    return r.choice(strange)()


def odd_index(r: Random, dims: int) -> Tensor:
    """Return an index of free state with arbitrary slots and shapes."""
    sizes = (0, 1, 2, -1, 2**31, 2**62, 2**63 - 1)
    rows = [
        [r.choice((0, 0, 1, 2, -1)), *(r.choice(sizes) for _ in range(dims))] for _ in range(r.choice((0, 1, 1, 2)))
    ]
    return torch.tensor(rows, dtype=torch.int64).reshape(len(rows), 1 + dims)


def altered(tensor: Tensor, r: Random) -> Tensor:
    """Return a tensor that differs a little from this one."""
    how = r.randrange(7)
    if how < 3 and tensor.numel():
        new = tensor.clone().reshape(-1)
        for _ in range(r.choice((1, 1, 2, 3))):
            if how == 0 or new.dtype.is_complex:
                flat = new.view(torch.uint8)
                flat[r.randrange(flat.numel())] ^= 1 << r.randrange(8)
            else:
                new[r.randrange(new.numel())] = r.choice(_within(new.dtype))
        return new.reshape(tensor.shape)
    if how == 3:
        return tensor.to(r.choice(list(DTYPES.values())))
    if how == 4:
        longer = tensor.repeat(2, *[1] * (tensor.dim() - 1)) if tensor.dim() else tensor.reshape(1)
        return longer[r.randrange(1, 1 + len(longer)) :] if r.random() < 0.7 else longer
    if how == 5:
        return r.choice((tensor.reshape(-1), tensor.unsqueeze(0), tensor.unsqueeze(-1), tensor[..., None, None]))
    shape = [r.choice((0, 1, 2, 3, 9)) for _ in range(r.randrange(4))] if r.random() < 0.98 else [9, 5000]
    return torch.zeros(shape, dtype=r.choice((tensor.dtype, torch.uint8, torch.int64, torch.float64, torch.float32)))


def _within(dtype: torch.dtype, _known: dict[torch.dtype, list[Any]] = {}) -> list[Any]:  # noqa: B006 - a cache
    if dtype not in _known:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype) if dtype != torch.bool else None
        low, high = (info.min, info.max) if info else (0, 1)
        as_is = float if dtype.is_floating_point else int
        _known[dtype] = [as_is(n) for n in (*NUMBERS, 5, 7) if low <= n <= high]
        _known[dtype] += [float("nan"), float("inf")] if dtype.is_floating_point else []
    return _known[dtype]


#: endings of keys
_NAMES = ("mean", "", "cpu/0", "cpu/x", "cpu", "cuda:0/0", "float32/2/m", "int64/0/n", "float32/99/m", "x/1/m")


class StateMutants:
    """Make states that the same rigs load one after the other."""

    def __init__(self, r: Random) -> None:
        self._random = r
        for seed in seeds().values():
            seed.attach()

    def mutant(self) -> Load:
        r = self._random
        into = seeds()["whole" if r.random() < 0.01 else r.choice(tuple(PARTS))]
        seed = seeds()[r.choice(tuple(PARTS))] if r.random() < 0.05 else into
        options = {"strict": r.random() < 0.5, "rename": r.choice((None, None, {"head": "first"}, {"*": "a.*"}))}
        tensors: dict[str, Any] = dict(seed.tensors)
        how = r.random()
        if how < 0.4:
            return Load(into.name, self._unsealed(seed, tensors), options, sealed=False)
        said = msgspec.json.decode(seed.said)
        if how < 0.6:
            for _ in range(r.choice((1, 1, 2))):
                inside = said.get(r.choice(("clock", "hooks", "plan", "entries", "")))
                bend(inside if isinstance(inside, dict) else said, r)
        elif how < 0.98:
            for _ in range(r.choice((1, 1, 1, 2, 3))):
                self._change(seed, said, tensors)
        state = {HEADER: seal(said, spread=r.random() < 0.01), **tensors}
        return Load(into.name, state, options, sealed=True, restored=r.random() < 0.005)

    def _unsealed(self, seed: Seed, tensors: dict[str, Any]) -> dict[str, Any]:
        r = self._random
        raw = bytearray(seed.header)
        how = r.randrange(6)
        if how < 3:
            for _ in range(r.choice((1, 1, 3))):
                at = r.randrange(len(raw))
                raw[at : at + r.choice((0, 1, 1, 9))] = r.choice((b"", b"0", r.randbytes(1), bytes(raw[-9:]), b"\xff"))
        elif how == 3:
            deep = b"[" * 5000
            raw[:] = r.choice((b"", b"{}", deep, b'{"digest":"","state":' + deep, bytes(raw) * 2))
        else:
            self._change_entry(seed, None, tensors)
        state = {HEADER: odd_entry(r) if r.random() < 0.05 else as_tensor(bytes(raw)), **tensors}
        if r.random() < 0.02:
            return r.choice(({}, {"hooks": state}, {f"hooks.{key}": value for key, value in state.items()}))
        return state

    def _change(self, seed: Seed, said: Any, tensors: dict[str, Any]) -> None:
        """Change an entry, and update the header."""
        r = self._random
        if r.random() < 0.3:
            for key in self._change_entry(seed, said, tensors):
                if key in tensors:
                    vouch(said, key, tensors[key])
                else:
                    said["entries"].pop(key.removeprefix(RANK), None)
        else:
            key = r.choice(list(seed.tensors))
            tensors[key] = altered(seed.tensors[key], r)
            vouch(said, key, tensors[key])

    def _change_entry(self, seed: Seed, said: Any, tensors: dict[str, Any]) -> Sequence[str]:
        """Drop, swap, move or add entries, and return their keys."""
        r = self._random
        key, other = r.choice(list(seed.tensors)), r.choice(list(seed.tensors))
        how = r.randrange(6)
        if how == 0:
            tensors.pop(key, None)
        elif how == 1:
            tensors[key], tensors[other] = seed.tensors[other], seed.tensors[key]
        elif how == 2:
            other = bent_word(key, r) if r.random() < 0.5 else self._key(seed)
            tensors[other] = tensors.pop(key, seed.tensors[key])
        elif how == 3:
            key = self._key(seed)
            tensors[key] = r.choice(list(seeds()[r.choice(tuple(PARTS))].tensors.values()))
        elif how == 4:
            dims = r.randrange(5)
            key = f"{RANK}{r.choice(('', 'pending_'))}index/{r.choice(seed.hooks)}/float32/{dims}/m"
            tensors[key], other = odd_index(r, dims), key.replace("index/", "free/")
            if r.random() < 0.3:
                tensors[other] = torch.zeros(r.choice((1, 2, 4)))
        else:
            tensors[key] = odd_entry(r)
        return key, other

    def _key(self, seed: Seed) -> str:
        r = self._random
        kind = r.choice((*OF_A_HOOK, "tensor"))
        rank = r.choice((*[RANK] * 8, "tenterhook/rank1/", "tenterhook/rank٣/", "tenterhook/"))
        rest = r.choice((*_NAMES, *WORDS))
        return f"{rank}{kind}/{r.choice(seed.hooks)}{'/' + rest if rest else ''}"

    def read(self, load: Load) -> None:
        seed = seeds()[load.seed]
        if not load.restored:
            seed.rig.load_state_dict(load.state, **load.options)
            return
        th.detach(seed.made.model)
        try:
            th.restore(seed.made.model, load.state, optimizer=seed.made.optimizer, **load.options)
        finally:
            seed.attach()

    def use(self, load: Load, _: None) -> None:
        """Check that a rig that has loaded a state can save it again and run."""
        seed = seeds()[load.seed]
        if not load.sealed and HEADER in load.state:
            own = {key: value for key, value in load.state.items() if key.startswith(RANK)}
            assert any(same(own, other.state) for other in seeds().values()), "damage was not noticed"
        if self._random.random() < 0.02:
            try:
                read(seed.rig.state_dict(), SizeLimits(64, seed.made.model))
            except th.TenterhookError as error:
                raise AssertionError("a state that was accepted cannot be saved and read") from error
            seed.made.run([0])

    @staticmethod
    def size(load: Load) -> int:
        return sum(value.nbytes for value in load.state.values() if type(value) is Tensor and not value.is_sparse)

    @staticmethod
    def word(load: Load, error: th.TenterhookError | None) -> str:
        seal = "sealed" if load.sealed else "unsealed"
        if error is None:
            return f"{seal}: accepted"
        inside = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
        return f"{seal}: refused in {'reading' if read.__code__ in inside else 'comparing'}"

    @staticmethod
    def written(load: Load) -> bytes:
        """Write a text that `loaded` reads. An object that is not a tensor is written as its repr."""
        entries = {key: _spelled(value) for key, value in load.state.items()}
        return json.dumps({**load._asdict(), "state": entries}).encode()


def _spelled(value: Any) -> Any:
    if type(value) is not Tensor or value.dtype not in NAMES or value.is_meta or not value.is_contiguous():
        return repr(value)
    raw = as_bytes(value.detach().clone(memory_format=torch.contiguous_format))
    return [NAMES[value.dtype], list(value.shape), list(value.stride()), raw.hex()]


def loaded(text: bytes) -> Load:
    """Read the text that `written` wrote."""
    load = Load(**json.loads(text))
    return load._replace(state={key: _tensor(*v) if isinstance(v, list) else v for key, v in load.state.items()})


def _tensor(dtype: str, shape: list[int], stride: list[int], raw: str) -> Tensor:
    return as_tensor(bytes.fromhex(raw)).view(DTYPES[dtype]).as_strided(shape, stride)
