"""Damage a saved state in memory and in files. The reader must detect all damage."""

from __future__ import annotations

import io
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random

import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

import tenterhook as th
from tenterhook.rig.saved.format import DTYPES, PREFIX, SizeLimits, as_bytes, as_tensor, read
from tests.support.keep.specimen import same, specimen

State = dict[str, Tensor]
RANK = PREFIX + "rank0/"
ROOM = SizeLimits(1000, torch.nn.Module())
HEADER = RANK + "header"
#: wide enough for a state of more than 25,000 bytes
WIDTH = 400
BLOCK = 512


def whole_state(*, steps: int = 3, width: int = WIDTH, seed: int = 0) -> State:
    """Return the state of a rig with packed, free and pending state, a generator, a tensor, taps and partials."""
    made = specimen(width=width, steps=steps, seed=seed)  # a rig does not keep its model alive
    return made.rig.state_dict()


def size(state: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in state.values())


def verdict(state: Mapping[str, Tensor]) -> str:
    """Read a state and return "noticed", "silent", or the name of an exception that is not from tenterhook."""
    try:
        read(state, ROOM)
    except th.StateError:
        return "noticed"
    except Exception as error:
        return type(error).__name__
    return "silent"


# -- in memory ---------------------------------------------------------------------------------------------------------


def bits(state: State) -> Iterator[tuple[str, int, int]]:
    """Yield every bit of a state as key, byte and bit in the byte."""
    for key, tensor in state.items():
        yield from ((key, byte, bit) for byte in range(tensor.nbytes) for bit in range(8))


def unnoticed_flips(state: State, places: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Flip one bit at a time, and yield the bits whose change the reader did not detect."""
    views = {key: tensor.reshape(-1).view(torch.uint8).numpy() for key, tensor in state.items()}
    for key, byte, bit in places:
        views[key][byte] ^= 1 << bit
        if verdict(state) != "noticed":
            yield key, byte, bit
        views[key][byte] ^= 1 << bit


def damages(state: State, others: Mapping[str, State]) -> Iterator[tuple[str, State]]:
    """Yield every other kind of damage; `others` are states of other steps and runs."""
    for made in (removed, swapped, foreign, cut, zeroed, retyped):
        yield from ((made.__name__, damaged) for damaged in made(state))
    for name, other in others.items():
        yield from ((name, damaged) for damaged in derive_seed(state, other))


def removed(state: State) -> Iterator[State]:
    for key in state:
        yield {k: tensor for k, tensor in state.items() if k != key}


def swapped(state: State) -> Iterator[State]:
    for one, other in itertools.combinations(state, 2):
        yield {**state, one: state[other], other: state[one]}


def foreign(state: State) -> Iterator[State]:
    for key in ("", "x", "header/", "tensor/w", "state/z/more", "state/none/mean", "free/m/float32/1/more",
                "generator/n/cuda:0/0", "targets/n/", "Ledger/z"):  # fmt: skip
        for tensor in (torch.zeros(0), torch.zeros(1), state[HEADER]):
            yield {**state, RANK + key: tensor}
            yield {**state, PREFIX + key: tensor}


def derive_seed(state: State, other: State) -> Iterator[State]:
    """Yield states in which one entry, or all entries but one, come from another state."""
    for key in state.keys() & other.keys():
        if not same({key: state[key]}, {key: other[key]}):
            yield {**state, key: other[key]}
            yield {**other, key: state[key]}
    yield {**other, HEADER: state[HEADER]}


def cut(state: State) -> Iterator[State]:
    """Yield states in which one tensor is shorter or longer; the header is cut at every length."""
    for key, tensor in state.items():
        flat = tensor.reshape(-1)
        count = len(flat)
        lengths = range(count) if key == HEADER else {0, 1, count // 2, count - 1} - {count}
        yield from ({**state, key: flat[:length].clone()} for length in lengths)
        yield from ({**state, key: torch.cat([flat, more])} for more in (flat, flat[:1], torch.zeros_like(flat[:1])))
        yield {**state, key: torch.cat([tensor, tensor[:1]])}


def zeroed(state: State) -> Iterator[State]:
    for key, tensor in state.items():
        for start in range(0, tensor.nbytes, BLOCK):
            raw = bytearray(as_bytes(tensor))
            raw[start : start + BLOCK] = bytes(len(raw[start : start + BLOCK]))
            yield {**state, key: as_tensor(bytes(raw)).view(tensor.dtype).reshape(tensor.shape)}


def retyped(state: State) -> Iterator[State]:
    """Yield states in which one tensor has the same bytes, but another dtype or shape."""
    for key, tensor in state.items():
        for dtype in DTYPES.values():
            if dtype.itemsize == tensor.dtype.itemsize and (dtype != torch.bool or int(tensor.max()) < 2):
                yield {**state, key: tensor.view(dtype)}
        shapes = [(-1,), (1, *tensor.shape), (*tensor.shape, 1), tuple(reversed(tensor.shape))]
        yield from ({**state, key: tensor.reshape(shape)} for shape in shapes)


def verdicts(state: State, damaged: Iterable[tuple[str, State]]) -> Counter[tuple[str, str]]:
    """Count the verdicts by kind of damage. A state that did not change is left out."""
    return Counter((kind, verdict(one)) for kind, one in damaged if not same(one, state))


# -- in files ----------------------------------------------------------------------------------------------------------


class InSafetensors:
    def __init__(self, state: State, directory: Path) -> None:
        self.raw = bytearray(safetensors.torch.save(state))

    def load(self) -> Mapping[str, Tensor]:
        return safetensors.torch.load(bytes(self.raw))


class InTorchSave:
    def __init__(self, state: State, directory: Path) -> None:
        file = io.BytesIO()
        torch.save(state, file)
        self.raw = bytearray(file.getvalue())

    def load(self) -> Mapping[str, Tensor]:
        return torch.load(io.BytesIO(self.raw), weights_only=True)


class InDcpShard:
    def __init__(self, state: State, directory: Path) -> None:
        self._directory = directory
        dcp.save({"hooks": dict(state)}, checkpoint_id=directory, no_dist=True)
        (self._shard,) = directory.glob("*.distcp")
        self.raw = bytearray(self._shard.read_bytes())

    def load(self) -> Mapping[str, Tensor]:
        self._shard.write_bytes(self.raw)
        into = th.DcpState(self._directory)
        dcp.load({"hooks": into}, checkpoint_id=self._directory, no_dist=True)
        return into.state_dict()


CONTAINERS: Mapping[str, Callable[[State, Path], InSafetensors | InTorchSave | InDcpShard]] = {
    "safetensors": InSafetensors,
    "torch.save": InTorchSave,
    "dcp": InDcpShard,
}


def flipped_files(container: str, state: State, directory: Path, r: Random, count: int) -> Counter[str]:
    """Flip one random bit of the file, `count` times, and count the outcomes."""
    outcomes: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DCP warns that there is only one process
        made = CONTAINERS[container](state, directory)
        assert same(made.load(), state)
        for _ in range(count):
            at, bit = r.randrange(len(made.raw)), r.randrange(8)
            made.raw[at] ^= 1 << bit
            outcomes[_outcome(made, state)] += 1
            made.raw[at] ^= 1 << bit
    return outcomes


def _outcome(made: InSafetensors | InTorchSave | InDcpShard, state: State) -> str:
    try:
        found = made.load()
    except (Exception, CheckpointException):  # CheckpointException does not derive from Exception
        return "refused by the container"
    said = verdict(found)
    own = {key: tensor for key, tensor in found.items() if key.startswith(PREFIX)} if said == "silent" else {}
    return "not ours" if said == "silent" and same(own, state) else said
