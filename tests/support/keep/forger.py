"""Change saved states and give them valid digests, as an attacker who knows the format could.

This module follows the description of the format and does not use the package's writer.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.support.keep.specimen import specimen

#: prefix of the keys of the only rank
PREFIX = "tenterhook/rank0/"
HEADER = PREFIX + "header"


@functools.cache
def honest(*, steps: int = 3, width: int = 2) -> Mapping[str, Tensor]:
    """Return a valid state with entries of every kind; `steps` and `width` select another step or another run."""
    kept = specimen(steps=steps, width=width)
    return kept.rig.state_dict()


class Forger:
    """Take a state apart, so that its header and its tensors can be changed; `seal()` puts it together again."""

    def __init__(self, state: Mapping[str, Tensor] | None = None) -> None:
        state = honest() if state is None else state
        #: the content of the header, without its entries
        self.said: dict[str, Any] = json.loads(data_of(state[HEADER]))["state"]
        self.said.pop("entries")
        self.tensors = {key: tensor.clone() for key, tensor in state.items() if key != HEADER}
        #: false descriptions of entries
        self.lies: dict[str, dict[str, Any]] = {}

    def seal(self) -> dict[str, Tensor]:
        return {HEADER: as_bytes(sealed(self.text())), **self.tensors}

    def text(self) -> str:
        """Return the inner text of the header, which describes each tensor correctly unless `lies` has its key."""
        entries = {key.removeprefix(PREFIX): truth_of(tensor) for key, tensor in self.tensors.items()}
        for key, lie in self.lies.items():
            entries[key] = {**entries.get(key, {}), **lie}
        return canonical({**self.said, "entries": entries})


# -- changes -----------------------------------------------------------------------------------------------------------

Change = Callable[[Forger], None]


def say(*path: Any, to: Any) -> Change:
    """Set the value at a path in the header."""

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
    """Set a tensor; `key` has no prefix. A function makes a large tensor only when it is needed."""

    def change(forger: Forger) -> None:
        forger.tensors[PREFIX + key] = tensor if isinstance(tensor, Tensor) else tensor()

    return change


def leave_out(key: str) -> Change:
    def change(forger: Forger) -> None:
        del forger.tensors[PREFIX + key]

    return change


def lie(key: str, **said: Any) -> Change:
    """Describe an entry falsely in the header."""

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
    """Return a new state of a plan, which may be any text or tree."""
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
    """Describe a tensor as a header does; the digest of a huge or odd tensor is not computed."""
    small = tensor.numel() <= 1 << 27 and tensor.device.type == "cpu" and tensor.layout is torch.strided
    digest = digest_of(data_of(tensor)) if small and not tensor.is_quantized else "0" * 32
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "digest": digest}


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sealed(text: str | bytes, version: Any = 1) -> bytes:
    """Return a header with this inner text, which need not be JSON."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return b'{"digest":"%b","state":%b,"tenterhook":%b}' % (digest_of(raw).encode(), raw, json.dumps(version).encode())


def digest_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def data_of(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy().tobytes()


def as_bytes(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
