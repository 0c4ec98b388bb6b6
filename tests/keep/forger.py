"""The forger: a saved state that was tampered with by somebody who knows the format, and sealed anew.

Written from the description of the format, not with the package's own writer.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.keep.specimen import specimen

#: of the one rank that there is
PREFIX = "tenterhook/rank0/"
HEADER = PREFIX + "header"


@functools.cache
def honest(*, steps: int = 3, width: int = 2) -> Mapping[str, Tensor]:
    """A state that is loaded, with entries of every kind; of another step or another run if you like."""
    kept = specimen(steps=steps, width=width)
    return kept.rig.state_dict()


class Forger:
    """A state taken apart: change `said` and `tensors`, then `seal()`."""

    def __init__(self, state: Mapping[str, Tensor] | None = None) -> None:
        state = honest() if state is None else state
        #: what the header says, without its entries
        self.said: dict[str, Any] = json.loads(data_of(state[HEADER]))["state"]
        self.said.pop("entries")
        self.tensors = {key: tensor.clone() for key, tensor in state.items() if key != HEADER}
        #: said of entries in place of the truth
        self.lies: dict[str, dict[str, Any]] = {}

    def seal(self) -> dict[str, Tensor]:
        return {HEADER: as_bytes(sealed(self.text())), **self.tensors}

    def text(self) -> str:
        """The header's inner text, with an honest entry for each tensor unless there is a lie."""
        entries = {key.removeprefix(PREFIX): truth_of(tensor) for key, tensor in self.tensors.items()}
        for key, lie in self.lies.items():
            entries[key] = {**entries.get(key, {}), **lie}
        return canonical({**self.said, "entries": entries})


# -- changes -----------------------------------------------------------------------------------------------------------

Change = Callable[[Forger], None]


def say(*path: Any, to: Any) -> Change:
    """Let the header say this at that place."""

    def change(forger: Forger) -> None:
        place = forger.said
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def unsay(*path: Any) -> Change:
    def change(forger: Forger) -> None:
        place = forger.said
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


def put(key: str, tensor: Tensor | Callable[[], Tensor]) -> Change:
    """Keys are without what all of them begin with. What is large is made when it is wanted."""

    def change(forger: Forger) -> None:
        forger.tensors[PREFIX + key] = tensor if isinstance(tensor, Tensor) else tensor()

    return change


def leave_out(key: str) -> Change:
    def change(forger: Forger) -> None:
        del forger.tensors[PREFIX + key]

    return change


def lie(key: str, **said: Any) -> Change:
    """Let the header say this of an entry."""

    def change(forger: Forger) -> None:
        forger.lies[key] = said

    return change


def together(*changes: Change) -> Change:
    def change(forger: Forger) -> None:
        for one in changes:
            one(forger)

    return change


def forged(change: Change) -> Callable[[], dict[str, Tensor]]:
    def make() -> dict[str, Tensor]:
        forger = Forger()
        change(forger)
        return forger.seal()

    return make


# -- by the rules of the format ----------------------------------------------------------------------------------------


def state_of_plan(plan: Any) -> dict[str, Tensor]:
    """A fresh state of this plan, which may be any text or tree."""
    hooks = plan.get("hooks") if isinstance(plan, dict) else None
    ids = {h["id"]: h for h in hooks or () if isinstance(h, dict) and isinstance(h.get("id"), str)}
    forger = Forger()
    forger.tensors = {}
    forger.said["hooks"] = {id: new_hook(h.get("do")) for id, h in ids.items()} or {"a": new_hook("scale")}
    if not isinstance(plan, bytes):
        forger.said["plan"] = plan
        return forger.seal()
    forger.said["plan"] = "*"
    return {HEADER: as_bytes(sealed(forger.text().encode().replace(b'"plan":"*"', b'"plan":' + plan)))}


def new_hook(do: Any) -> dict[str, Any]:
    action = next(iter(do), "scale") if isinstance(do, dict) else do
    return {"action": action if isinstance(action, str) else "scale", "version": 1, "fingerprint": None, "due": 0,
            "counted": -1, "muted": False, "kinds": [], "reasons": [], "skipped": []}  # fmt: skip


def truth_of(tensor: Tensor) -> dict[str, Any]:
    """What a header says of a tensor, of which only as much is read as fits into memory."""
    small = tensor.numel() <= 1 << 27 and tensor.device.type == "cpu" and tensor.layout is torch.strided
    digest = digest_of(data_of(tensor)) if small and not tensor.is_quantized else "0" * 32
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "digest": digest}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sealed(text: str | bytes, version: Any = 1) -> bytes:
    """A header of this inner text, which need not be JSON."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return b'{"digest":"%b","state":%b,"tenterhook":%b}' % (digest_of(raw).encode(), raw, json.dumps(version).encode())


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def data_of(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().tobytes()


def as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
