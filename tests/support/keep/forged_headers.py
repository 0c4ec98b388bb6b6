"""Make saved states whose header has a valid digest and impossible content."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.support.keep.forger import Change, Forger, lie, new_hook, put, say, together, unsay
from tests.support.keep.hostile_plans import CODE, PATHS

#: characters that no name, reason or version may contain
CONTROLS = ("\0", "\x1b[2J", "\x07", "\x7f", "\x85", "\u202e", "\n")
#: an integer above the limit that all JSON readers support
PAST = (1 << 53) + 1


def headers() -> Iterator[tuple[str, Change]]:
    yield from _fields()
    yield from _plans()
    yield from _clocks()
    yield from _hooks()
    yield from _entries()
    yield from _controls()


def _fields() -> Iterator[tuple[str, Change]]:
    for field in Forger().said:
        yield f"header without {field}", unsay(field)
        yield f"header's {field} is null", say(field, to=None)
        yield f"header's {field} is a list", say(field, to=[1])
    for number in (-1, "2", 2.5, True, PAST):
        yield f"threads {number!r}", say("threads", to=number)
        yield f"ranks {number!r}", say("ranks", to=number)
    for optimizers in ([], ["another"], ["optimizer", "optimizer"], [CODE[0]], "optimizer", [["optimizer"]]):
        yield f"optimizers {optimizers}", say("optimizers", to=optimizers)
    for sharded in (1, "true", None):
        yield f"sharded {sharded!r}", say("sharded", to=sharded)
    yield "shards of 8 ranks", together(say("sharded", to=True), say("ranks", to=8))
    for field in ("import", "_target_", "class", "__reduce__", "pickle", "code"):
        yield f"an unknown field {field}", say(field, to=CODE[0])


def _plans() -> Iterator[tuple[str, Change]]:
    """Yield values that are not plans, and plans of other hooks."""
    for name, plan in {"a text": "{}", "a number": 1, "empty": {}, "of no version": {"hooks": []}}.items():
        yield f"plan is {name}", say("plan", to=plan)
    yield "plan of no hooks", say("plan", "hooks", to=[])
    yield "plan of one hook less", unsay("plan", "hooks", 0)
    yield "plan with explicit defaults", say("plan", "hooks", 0, "expect", to=None)
    yield "plan of a later format", say("plan", "tenterhook", to=2)
    yield "plan of another id", say("plan", "hooks", 0, "id", to="zz")
    yield "plan with an unknown point", say("plan", "hooks", 0, "at", to="nowhere")
    yield "plan with a point of modules", say("plan", "hooks", 0, "at", to="output")
    for action in ("", "scale", *CODE[:4]):
        yield f"plan with the action {action!r}", say("plan", "hooks", 0, "do", to={action: {}})


def _clocks() -> Iterator[tuple[str, Change]]:
    for field, values in {
        "step": (-1, PAST, 1 << 63, 1.5, "3", True, None, [3]),
        "tripped": (-2, PAST, "1", True, None),
        "accumulated": (0, 1, "true", None),
        "forwards": ([], [0], [0, 0, 0], [-1, 0], [0, PAST], {}, "00", [True, False], [[0], [0]], [0.5, 0]),
        "last": ([], [0, 0], [0, 0, 0], [0, 0, True, True], [-1, 0, True], [0, PAST, True], "001", None),
        "optimizer": (1, [], True, "", "another", *CODE[:3]),
        "manual": (0, 1, "false", None),
    }.items():
        for value in values:
            yield f"clock's {field} is {value!r}", say("clock", field, to=value)
        yield f"clock without {field}", unsay("clock", field)
    yield "clock with a field more", say("clock", "epoch", to=1)


def _hooks() -> Iterator[tuple[str, Change]]:
    for field, values in {
        "action": (1, None, [], "", "scale", *CODE[:6]),
        "version": (-1, 2, PAST, "1", True, None, 1.5),
        "fingerprint": (1, [], "", "0" * 16, *CODE[:4]),
        "due": (-1, PAST, "3", True, None),
        "counted": (-2, PAST, "3", None),
        "muted": (0, 1, "false", None),
        "kinds": (None, "x", [1], {}, [None], [], ["float32"], ["float64[2, 2]", "float32[2]"], [CODE[0]] * 2),
        "reasons": (None, "x", [1], ["because"], [CODE[0]], [""]),
        "skipped": (None, "x", [1], ["one more"], [""] * 3),
    }.items():
        for value in values:
            yield f"a hook's {field} is {value!r}", say("hooks", "m", field, to=value)
        yield f"a hook without {field}", unsay("hooks", "m", field)
    yield "a hook with a field more", say("hooks", "m", "code", to=CODE[0])
    yield "a hook more", say("hooks", "more", to=new_hook("scale"))
    yield "a hook less", unsay("hooks", "m")
    for id in (*PATHS[:8], CODE[0], "\0", "z/../m"):
        yield f"a hook called {id!r}", say("hooks", id, to=new_hook("scale"))


#: keys with an unknown hook, an unknown kind, or a name that the kind does not have
MEANINGLESS = (
    "", "x", "state", "state/", "state/nobody/mean", "ledger/nobody", "tensor", "tensor/", "code/m",
    "free", "free/nobody/float32/1/x", "rank0/state/z/mean", "../../etc/passwd", "state/../m/x", "ledger/m/",
    "header/1", "ledger/m/more", "targets/m/more", "fired/p/more",
    "ledger/m\0", "generator/m", "STATE/z/mean", *CODE[:3],
)  # fmt: skip


def _entries() -> Iterator[tuple[str, Change]]:
    """Yield headers that describe their entries wrongly, and states with unknown entries."""
    for field, values in {
        "dtype": ("", "int32", "INT64", "torch.int64", "object", "long", 1, None, *CODE[:5]),
        "digest": ("", "0" * 32, "0" * 64, 1, None, CODE[0], "\0" * 32),
        "shape": ([], [9], [9, 2, 1], [2, 9], [-9, -2], [9.5, 2], ["9", "2"], [True, 2], None, 18, "9", {"0": 9},
                  [1 << 60, 1 << 60], [1 << 62], [10**30], [1] * 100_000),
    }.items():  # fmt: skip
        for value in values:
            yield f"an entry's {field} is {value!r}"[:80], lie("ledger/m", **{field: value})
    yield "an entry with a field more", lie("ledger/m", offset=0)
    yield "an entry that is not there", lie("state/z/more", dtype="float64", shape=[1], digest="0" * 32)
    yield "an entry that is the header", lie("header", dtype="uint8", shape=[1], digest="0" * 32)
    for key in MEANINGLESS:
        yield f"an entry called {key!r}", put(key, torch.zeros(2))


def _controls() -> Iterator[tuple[str, Change]]:
    """Yield headers with control characters or texts of half a megabyte, most together with a difference to report."""
    differs = say("hooks", "m", "version", to=2)
    for text in (*CONTROLS, "a" * 500_000):
        shown = repr(text)[:20]
        for field in ("torch", "python", "cpu"):
            yield f"{field} is {shown}", together(say(field, to=text), differs)
        yield f"skipped because {shown}", together(say("hooks", "p", "skipped", to=[text]), differs)
        yield f"muted because {shown}", together(say("hooks", "f", "reasons", to=[f"muted: {text}"]), differs)
        yield f"kind {shown}", say("hooks", "m", "kinds", to=[text, "float32[2]"])
        yield f"action {shown}", say("hooks", "m", "action", to=text)
        yield f"fingerprint {shown}", say("hooks", "m", "fingerprint", to=text)
        yield f"dtype {shown}", lie("ledger/m", dtype=text)
        yield f"digest {shown}", lie("ledger/m", digest=text)
        yield f"free state called {shown}", put(f"free/m/float32/1/{text}", torch.zeros(2))
    for text in CONTROLS:
        for field in ("torch", "python", "cpu"):
            yield f"{field} is {text!r} and nothing differs", say(field, to=text)
        yield f"skipped because {text!r} and nothing differs", say("hooks", "p", "skipped", to=[text])
        yield f"muted because {text!r} and nothing differs", say("hooks", "f", "reasons", to=[f"muted: {text}"])
