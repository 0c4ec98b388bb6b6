"""Test the report of all differences, which is complete before anything is loaded."""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tenterhook as th
from tenterhook.rig.saved.load_report import ALSO, MOST, Difference, LoadReport
from tenterhook.rig.saved.renaming import Renaming
from tests.keep.conftest import ACTIONS, HEADER, Net, Run, build, canonical, copied, header, raw, resealed, same

# -- the text ---------------------------------------------------------------------------------------------------------


def test_nothing_differs():
    report = LoadReport()
    assert not report and str(report) == "all of the state was loaded"
    report.refuse()
    report.notes.append("the moon was full, is new")
    assert not report and str(report) == "all of the state was loaded\n  note: the moon was full, is new"
    report.refuse()


def test_a_difference_names_its_place():
    assert str(Difference("tensor", "is another")) == "is another"
    assert str(Difference("hook", "is another", "h")) == "hook 'h': is another"
    assert str(Difference("target", "is another", "h", "a.b")) == "hook 'h' on 'a.b': is another"
    assert str(Difference("target", "is another", None, "a.b")) == "on 'a.b': is another"


def test_targets_of_which_the_same_is_to_be_said_stand_in_one_line():
    report = LoadReport()
    for i in range(ALSO + 4):
        report.add("target", "gone", hook="h", target=f"a.{i}")
    report.add("target", "gone", hook="g", target="a.0")
    report.add("target", "here", hook="h", target="a.0")
    report.add("hook", "gone", hook="h")
    assert str(report) == (
        "11 differences\n"
        "  hook 'h' on 'a.0': gone; also on 'a.1', 'a.2', 'a.3', 'a.4' and 3 more\n"
        "  hook 'g' on 'a.0': gone\n"
        "  hook 'h' on 'a.0': here\n"
        "  hook 'h': gone"
    )


def test_of_very_many_differences_the_rest_is_counted():
    report = LoadReport()
    for i in range(MOST):
        report.add("hook", f"fact {i}", hook="h")
    assert str(report).splitlines() == ["20 differences", *(f"  hook 'h': fact {i}" for i in range(20))]
    for i in range(3):
        report.add("hook", f"more {i}", hook="h")
    report.notes.append("and so on")
    lines = str(report).splitlines()
    assert lines[0] == "23 differences" and lines[20:] == [
        "  hook 'h': fact 19", "  ... and 3 more lines", "  note: and so on",
    ]  # fmt: skip


def test_of_very_many_notes_the_rest_is_counted():
    report = LoadReport(notes=[f"note {i}" for i in range(MOST + 3)])
    assert len(str(report).splitlines()) == 1 + MOST + 1 and str(report).endswith("  ... and 3 more notes")


def test_the_error_has_the_report():
    report = LoadReport()
    report.add("hook", "is another", hook="h")
    report.notes.append("of no weight")
    with pytest.raises(th.MismatchError) as error:
        report.refuse()
    assert str(error.value) == (
        "the saved state does not fit: 1 difference\n"
        "  hook 'h': is another\n"
        "  note: of no weight\n"
        "  remedy: pass strict=False to load what fits"
    )
    assert error.value.report is report and isinstance(error.value, th.StateError)


# -- targets that have no counterpart ---------------------------------------------------------------------------------


def kept_names(*names: str) -> list[tuple[str, str]]:
    """Return each name twice, since it is not renamed."""
    return [(name, name) for name in names]


def test_the_nearest_name_and_a_rename_are_proposed():
    report = LoadReport()
    report.missing("h", kept_names("encoder.0.weight", "encoder.1.weight"), ["backbone.0.weight", "backbone.1.weight"])
    with pytest.raises(th.MismatchError) as error:
        report.refuse()
    assert str(error.value) == (
        "the saved state does not fit: 4 differences\n"
        "  hook 'h' on 'encoder.0.weight': saved, but not on this model; the nearest is 'backbone.0.weight'\n"
        "  hook 'h' on 'encoder.1.weight': saved, but not on this model; the nearest is 'backbone.1.weight'\n"
        "  hook 'h' on 'backbone.0.weight': on this model, but not saved; also on 'backbone.1.weight'\n"
        '  remedy: pass rename={"encoder": "backbone"}, or pass strict=False to load what fits'
    )


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("0.weight", "net.0.weight", 'rename={"*": "net.*"}'),
        ("0.weight", "a.b.0.weight", 'rename={"*": "a.b.*"}'),
        ("net.0.weight", "0.weight", 'rename={"net.*": "*"}'),
        ("encoder.0.weight", "encoders.0.weight", 'rename={"encoder": "encoders"}'),
        ("blocks.0.weight", "blocks.0.inner.weight", 'rename={"blocks.*": "blocks.*.inner"}'),
        ("head.weight", "head.weights", 'rename={"head.weight": "head.weights"}'),
        ("weight", "weights", 'rename={"weight": "weights"}'),
    ],
)
def test_the_proposed_rename(old, new, line):
    report = LoadReport()
    report.missing("h", kept_names(old), [new])
    assert report.renaming == line
    assert applied(report.renaming)(old) == new


def applied(line: str) -> Renaming:
    return Renaming(ast.literal_eval(line.removeprefix("rename=")))


@pytest.mark.parametrize("part", ['q"', "it's", "\\"])
def test_the_proposed_rename_is_python_whatever_the_name(part):
    report = LoadReport()
    report.missing("h", kept_names(f"{part}.weight"), [f"{part}{part}.weight"])
    assert applied(report.renaming)(f"{part}.weight") == f"{part}{part}.weight"


PARTS = st.lists(st.sampled_from(["net", "0", "1", "weight", "a"]), max_size=4)


@settings(max_examples=300, deadline=None, database=None)
@given(PARTS, PARTS, PARTS)
def test_a_proposed_rename_does_what_it_says(before, after, shared):
    old, new = ".".join([*before, *shared, "x"]), ".".join([*after, *shared, "x"])
    report = LoadReport()
    report.missing("h", kept_names(old), [new])
    if old != new and report.renaming is not None:
        assert applied(report.renaming)(old) == new


def test_the_first_rename_is_the_one_proposed():
    report = LoadReport()
    report.missing("h", kept_names("one.weight", "two.weight"), ["ones.weight", "twos.weight"])
    report.missing("g", kept_names("six.weight"), ["sixs.weight"])
    assert report.renaming == 'rename={"one": "ones", "two": "twos"}'


@pytest.mark.parametrize(
    ("lost", "new", "fits"),
    [
        (["encoder.0.weight", "zzz"], ["backbone.0.weight", "encoders.1.bias"], []),
        (["0.weight"], ["net.0.weight"], ["head.weight"]),
    ],
    ids=["does not settle all", "moves what fits"],
)
def test_a_rename_that_does_not_settle_it_is_not_proposed(lost, new, fits):
    report = LoadReport()
    report.missing("h", kept_names(*lost), new, fits)
    assert report.renaming is None


def test_a_name_that_was_renamed_is_told_with_both():
    report = LoadReport()
    report.missing("h", [("old.weight", "new.weight")], ["newer.weight"])
    assert str(report.differences[0]) == (
        "hook 'h' on 'old.weight': saved, but this model has no target 'new.weight'; the nearest is 'newer.weight'"
    )
    assert report.renaming is None


def test_the_nearest_is_looked_for_only_while_it_would_be_shown():
    report = LoadReport()
    report.missing(
        "h", kept_names(*(f"layer.{i}.weight" for i in range(30))), [f"layers.{i}.weight" for i in range(30)]
    )
    facts = [d.fact for d in report.differences]
    assert facts[:20] == [f"saved, but not on this model; the nearest is 'layers.{i}.weight'" for i in range(20)]
    assert facts[20:] == ["saved, but not on this model"] * 10 + ["on this model, but not saved"] * 30


# -- differences of a rig ---------------------------------------------------------------------------------------------


def counting(code: Callable[..., None] | None = None, **contract: Any) -> th.Registry:
    """Return a registry with its own `count`."""
    actions = th.Registry()
    th.action("count", registry=actions, **{"state": {"n": 0.0}, **contract})(code or ACTIONS.get("count").fn)
    return actions


def twice(x: Tensor, ctx: th.Context) -> None:
    ctx.state["n"] = ctx.state["n"] + 2


def hook(id: str = "n", on: Any = "**.bias", at: str = "grad", do: Any = th.Action("count")) -> th.Hook:  # noqa: B008
    return th.Hook(id, on=on, at=at, do=do)


def small(steps: int = 0, *, make: Any = Net, actions: th.Registry = ACTIONS, plan: Any = (), **given: Any) -> Run:
    model, optimizer = build(make)
    counted = given.pop("counted", lambda optimizer: optimizer)(optimizer)
    rig = th.attach(model, plan or hook(), optimizer=counted, actions=actions, **given)
    return Run(model, optimizer, rig).train(range(steps))


class Wide(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)


class Double(Net):
    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.double())


class Shifted(Net):
    """Give the last bias another name."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2, bias=False)
        self.head.shift = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.head.shift


def to_cuda(said: dict[str, Any], entries: dict[str, Tensor]) -> None:
    entries["tenterhook/rank0/generator/r/cuda:0/0"] = entries.pop("tenterhook/rank0/generator/r/cpu/0")


def crowded(said: dict[str, Any], entries: dict[str, Tensor]) -> None:
    names = "\0".join(f"p{i}" for i in range(4097))
    entries["tenterhook/rank0/targets/n"] = torch.tensor(list(names.encode()), dtype=torch.uint8)
    entries["tenterhook/rank0/ledger/n"] = torch.full((9, 4097), -1).index_fill_(0, torch.arange(5), 0)
    entries["tenterhook/rank0/state/n/n"] = torch.zeros(4097, dtype=torch.float64)


class Case(NamedTuple):
    #: how the rig that was saved after three steps was made, and how the rig that loads it was made
    then: dict[str, Any]
    here: dict[str, Any]
    lines: list[str]
    #: results with strict=False: how often each target fired, and its `n`
    fired: list[int]
    n: list[int] | None
    remedy: str = "pass strict=False to load what fits"
    change: Callable[..., None] = lambda said, entries: None
    #: how many steps the loading rig has run before
    steps: int = 1


OTHER_MODEL = (
    "no target fits; load the state into the model that it was saved for, or pass rename= if only names changed"
)
#: a parameter of an optimizer that never steps
BESIDE = torch.zeros(1, requires_grad=True)
ALL, NONE = [6, 6, 6, 6], [0, 0, 0, 0]
NOISY = {"plan": [hook(), hook("r", do=th.noise(0.1))]}


def masked(by: Tensor) -> dict[str, Any]:
    return {"plan": [hook(), hook("m", on="head.bias", do=th.mask(by="v"))], "tensors": {"v": by}}


CASES = {
    "another action": Case({}, {"plan": hook(do=th.stats())},
        ["hook 'n': its action was 'count' and is now 'stats'"], NONE, None),
    "another point": Case({}, {"plan": hook(at="grad_final")},
        ["hook 'n': its point was grad and is now grad_final"], NONE, None),
    "another id": Case({}, {"plan": hook("n2")},
        ["hook 'n': saved, but not in this plan; the nearest is 'n2'",
         "hook 'n2': in this plan, but not saved, so it starts without state"], NONE, None),
    "a generator that would be lost": Case(NOISY, {}, ["hook 'r': saved, but not in this plan"], ALL, ALL),
    "fewer targets": Case({}, {"plan": hook(on="blocks.**.bias")},
        ["hook 'n' on 'embed.bias': saved, but not on this model; also on 'head.bias'"], [6, 6], [6, 6]),
    "more targets": Case({}, {"plan": hook(on="**")},
        ["hook 'n' on 'embed.weight': on this model, but not saved; also on 'blocks.0.lin.weight', "
         "'blocks.1.lin.weight', 'head.weight'"], [0, 6] * 4, [0, 6] * 4),
    "another name": Case({}, {"plan": hook(on=("**.bias", "head.shift")), "make": Shifted},
        ["hook 'n' on 'head.bias': saved, but not on this model; the nearest is 'head.shift'",
         "hook 'n' on 'head.shift': on this model, but not saved"], [6, 6, 6, 0], [6, 6, 6, 0],
        remedy='pass rename={"head.bias": "head.shift"}, or pass strict=False to load what fits'),
    "another shape": Case({}, {"make": Wide},
        ["hook 'n' on 'head.bias': saved as float32[2], but it is now float32[3]"], [6, 6, 6, 0], [6, 6, 6, 0]),
    "another dtype": Case({}, {"make": Double},
        ["hook 'n' on 'embed.bias': saved as float32[4], but it is now float64[4]; also on 'blocks.0.lin.bias', "
         "'blocks.1.lin.bias'", "hook 'n' on 'head.bias': saved as float32[2], but it is now float64[2]"], NONE, NONE,
        remedy=OTHER_MODEL),
    "another tensor": Case(masked(torch.ones(2)), masked(torch.tensor([1.0, 1.0 + 2**-23])),
        ["the tensor 'v' differs from the saved tensor"], ALL, ALL),
    "a tensor of another dtype": Case(masked(torch.zeros(2)), masked(torch.zeros(2, dtype=torch.int32)),
        ["the tensor 'v' differs from the saved tensor"], ALL, ALL),
    "a newer version": Case({"actions": counting(version=3)}, {"actions": counting(version=2)},
        ["hook 'n': saved with version 3 of 'count', which is newer than this version, 2"], ALL, ALL),
    "an older version": Case({"actions": counting(version=3)}, {"actions": counting(version=10)},
        ["hook 'n': saved with version 3 of 'count', which is older than this version, 10"], ALL, ALL),
    "other code": Case({}, {"actions": counting(twice)},
        ["hook 'n': the code of 'count' has changed since the state was saved"], ALL, ALL),
    "other state": Case({}, {"actions": counting(state={"m": 0.0})},
        ["hook 'n': 'count' has no state 'n' in this program"], ALL, None, steps=0),
    "more state": Case({}, {"actions": counting(state={"n": 0.0, "m": 0.0})},
        ["hook 'n': the state 'm' was not saved"], ALL, ALL),
    "a generator of another device": Case(NOISY, NOISY,
        ["hook 'r': its generator was on cuda:0, but this model is not on that device"], ALL, ALL, change=to_cuda),
    "no optimizer": Case({}, {"counted": lambda _: None},
        ["saved with 'optimizer', but this rig has no optimizer"], ALL, ALL,
        remedy="pass optimizer=optimizer, or pass strict=False to load what fits"),
    "other optimizers": Case({}, {"counted": lambda optimizer: {"a": optimizer, "b": torch.optim.SGD([BESIDE])}},
        ["saved with 'optimizer', but this rig has 'optimizer.a', 'optimizer.b'"], ALL, ALL),
    "another clock": Case({"counted": lambda one: [one, torch.optim.SGD([BESIDE])], "clock": "0"},
        {"counted": lambda one: [one, torch.optim.SGD([BESIDE])]},
        ["the saved rig counted steps of 'optimizer.0', but this rig counts steps of 'optimizer.1'"], ALL, ALL),
    "a crowd": Case({}, {}, ["hook 'n': saved for 4097 targets, but this model has 4"], NONE, None, change=crowded,
        remedy=OTHER_MODEL),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_refused_and_nothing_is_loaded(name):
    case = CASES[name]
    run, other = small(case.steps, **case.here), small(3, **case.then)
    state, before = resealed(other.rig.state_dict(), case.change), run.rig.state_dict()
    with pytest.raises(th.MismatchError) as error:
        run.rig.load_state_dict(state)
    count, lines = len(error.value.report.differences), "\n  ".join(case.lines)
    head, _, foot = str(error.value).partition("\n  remedy: ")
    assert head.partition("\n  note: ")[0] == (
        f"the saved state does not fit: {count} difference{'s' if count > 1 else ''}\n  {lines}"
    )
    assert foot == error.value.remedy == case.remedy
    same(run.rig.state_dict(), before)
    report = run.rig.load_state_dict(state, strict=False)
    assert report and str(report) == str(error.value.report) and run.rig.step_count == 3
    (id, account), *_ = run.rig.ledger.items()
    assert [site.fired for site in account.values()] == case.fired
    kept = run.rig.state_dict().get(f"tenterhook/rank0/state/{id}/n")
    assert (None if kept is None else kept.tolist()) == case.n


# -- states that cannot be read ---------------------------------------------------------------------------------------

N = "tenterhook/rank0/state/n/n"


def flipped(key: str, at: int) -> Callable[[dict[str, Tensor]], None]:
    def flip(state: dict[str, Tensor]) -> None:
        state[key].view(-1).view(torch.uint8)[at] ^= 1

    return flip


def without(key: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda state: state.__delitem__(key)


def put(key: str, make: Callable[[Tensor], Any]) -> Callable[[dict[str, Tensor]], None]:
    return lambda state: state.update({key: make(state.get(key))})


def nested(tensor: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch recommends another layout
        return torch.nested.nested_tensor([tensor[:2], tensor[2:]])


def sealed_with(change: Callable[..., object]) -> Callable[[dict[str, Tensor]], object]:
    """Return a change of a state after which all digests are valid."""
    return lambda state: [made := resealed(state, change), state.clear(), state.update(made)]


def reworded(tensor: Tensor, old: str, new: str) -> Tensor:
    """Return the header with a replaced text and a valid digest."""
    inner = canonical(header({HEADER: tensor})).replace(old, new, 1)
    digest = hashlib.blake2b(inner.encode(), digest_size=16).hexdigest()
    return torch.tensor(list(f'{{"digest":"{digest}","state":{inner},"tenterhook":1}}'.encode()), dtype=torch.uint8)


def of_format(tensor: Tensor, number: int) -> Tensor:
    """Return the header with another format number, which is at its end."""
    text = raw(tensor).decode().removesuffix("1}") + f"{number}}}"
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def unwritten(said: dict[str, Any], entries: dict[str, Tensor]) -> None:
    said["plan"]["hooks"][0]["when"] = {"every": 1}


def ledger(row: int, value: int) -> Callable[..., None]:
    return lambda said, entries: entries["tenterhook/rank0/ledger/n"][row].fill_(value)


DAMAGE = {
    "no header": (without(HEADER), f"the entry '{HEADER}' is missing"),
    "a header of numbers": (put(HEADER, Tensor.double), "the header is not a one-dimensional tensor of bytes"),
    "half a header": (put(HEADER, lambda t: t[:99]), "the header cannot be read: Input data was truncated"),
    "a bit of the header": (flipped(HEADER, -40), "the header has changed since it was saved"),
    "a space in the header": (put(HEADER, partial(reworded, old="{", new="{ ")), "the header is not canonical JSON"),
    "a word in the header": (sealed_with(lambda said, _: said.update(more=1)),
        "the header cannot be read: Object contains unknown field `more`"),
    "hooks that are not planned": (sealed_with(lambda said, _: said["hooks"].update(m=said["hooks"]["n"])),
        "the header and its plan have different hooks"),
    "a hook of another action": (sealed_with(lambda said, _: said["hooks"]["n"].update(action="stats")),
        "the header and its plan have different hooks"),
    "a word for the terminal": (sealed_with(lambda said, _: said["hooks"]["n"].update(reasons=["muted\x1b[31m"])),
        "the header has a name that is too long or not printable"),
    "a plan that we write otherwise": (sealed_with(unwritten), "the saved plan is not canonical JSON"),
    "a dtype that is none": (put(HEADER, partial(reworded, old='"float64"', new='"float46"')),
        f"the entry '{N}' has the unknown dtype 'float46'"),
    "an entry missing": (without(N), f"the entry '{N}' is missing"),
    "an entry of a long name": (put(f"tenterhook/{'x' * 200}", lambda _: torch.ones(1)),
        f"the entry 'tenterhook/{'x' * 85}... is unknown"),
    "an entry more": (put("tenterhook/rank0/more", lambda _: torch.ones(1)),
        "the entry 'tenterhook/rank0/more' does not belong to this state"),
    "a bit of an entry": (flipped(N, 0), f"the entry '{N}' has changed since it was saved"),
    "an entry of another dtype": (put(N, Tensor.float), f"the entry '{N}' is float32[4], not float64[4]"),
    "an entry of another shape": (put(N, lambda t: t.reshape(2, 2)),
        f"the entry '{N}' is float64[2, 2], not float64[4]"),
    "an entry of strides": (put(N, lambda t: t[:1].expand(4)), f"the entry '{N}' is not a plain, contiguous tensor"),
    "a nested entry": (put(N, nested),
        f"the entry '{N}' is not a plain, contiguous tensor"),
    "an entry that is not a tensor": (put(N, Tensor.tolist), f"the entry '{N}' must be a tensor, but its type is list"),
    "a ledger more": (sealed_with(lambda _, entries: entries.update({"tenterhook/rank0/ledger/n/more": torch.ones(1)})),
        "the entry 'ledger/n/more' is unknown"),
    "an entry of no kind, named": (
        sealed_with(lambda _, entries: entries.update({"tenterhook/rank0/what/n/x": torch.ones(1)})),
        "the entry 'what/n/x' is unknown"),
    "an entry of no kind": (sealed_with(lambda _, entries: entries.update({"tenterhook/rank0/what/n": torch.ones(1)})),
        "the entry 'what/n' is unknown"),
}  # fmt: skip
DAMAGED = {name: (change, f"the saved state is damaged: {fact}\n  remedy: load an earlier checkpoint")
           for name, (change, fact) in DAMAGE.items()}  # fmt: skip
#: entries that have a valid digest and invalid content
MEANINGLESS = {
    "firings below zero": ("ledger", ledger(1, -1)),
    "a first step below none": ("ledger", ledger(5, -2)),
    "a kind that is not listed": ("ledger", ledger(7, 2)),
    "a reason that is not listed": ("ledger", ledger(8, 0)),
    "a reason that is not about muting": ("ledger", lambda said, _: said["hooks"]["n"].update(reasons=["frozen"])),
    "a ledger of a row more": ("ledger", lambda said, _: said["hooks"]["n"].update(skipped=["why"])),
    "two targets of one name": ("list of targets", lambda _, entries: entries.update(
        {"tenterhook/rank0/targets/n": torch.tensor(list(b"a\0b\0b\0c"), dtype=torch.uint8)})),
    "a name too many": ("list of targets", lambda _, entries: entries.update(
        {"tenterhook/rank0/targets/n": torch.tensor(list(b"a\0b\0c\0d\0e"), dtype=torch.uint8)})),
    "no targets": ("list of targets", lambda _, entries: entries.pop("tenterhook/rank0/targets/n")),
    "state of a target more": ("state", lambda _, entries: entries.update({N: torch.zeros(5, dtype=torch.float64)})),
    "state of another dtype": ("state", lambda _, entries: entries.update({N: torch.zeros(4)})),
    "free state of no index": ("free", lambda _, entries: entries.update(
        {"tenterhook/rank0/free/n/float32/1/v": torch.zeros(1)})),
    "free state twice of one target": ("free state", lambda _, entries: entries.update(
        {"tenterhook/rank0/free/n/float32/1/v": torch.zeros(2),
         "tenterhook/rank0/index/n/float32/1/v": torch.tensor([[0, 1], [0, 1]])})),
    "free state of no target": ("free state", lambda _, entries: entries.update(
        {"tenterhook/rank0/free/n/float32/1/v": torch.zeros(1),
         "tenterhook/rank0/index/n/float32/1/v": torch.tensor([[4, 1]])})),
    "free state twice of one name": ("free state", lambda _, entries: entries.update(
        {"tenterhook/rank0/index/n/float32/1/v": torch.tensor([[0, 0]]),
         "tenterhook/rank0/index/n/int64/1/v": torch.tensor([[0, 0]])})),
    "a generator of no seed": ("generator", lambda _, entries: entries.update(
        {"tenterhook/rank0/generator/n/cpu/x": torch.Generator().get_state()})),
    "half a generator": ("generator", lambda _, entries: entries.update(
        {"tenterhook/rank0/generator/n/cpu/0": torch.zeros(9, dtype=torch.uint8)})),
    "partial results of no action": ("partial results", lambda _, entries: entries.update(
        {"tenterhook/rank0/partial/n/norm": torch.zeros(4, 1, dtype=torch.float64)})),
}  # fmt: skip
UNREADABLE = {
    **DAMAGED,
    "an earlier format": (put(HEADER, partial(of_format, number=0)),
        "the state has format 0, but this version of tenterhook reads format 1\n"
        "  remedy: load it with the version of tenterhook that wrote it, or a later version"),
    "a later format": (put(HEADER, partial(of_format, number=2)),
        "the state has format 2, but this version of tenterhook reads format 1\n"
        "  remedy: load it with the version of tenterhook that wrote it, or a later version"),
    "the whole checkpoint": (lambda state: [inner := dict(state), state.clear(), state.update({"my hooks": inner})],
        "the state of the hooks is in a nested mapping\n  remedy: pass this entry: sd['my hooks']"),
    "a checkpoint of checkpoints": (
        lambda state: [inner := dict(state), state.clear(), state.update({"a": {"b": {"c": inner}}})],
        "the state of the hooks is in a nested mapping\n  remedy: pass this entry: sd['a']['b']['c']"),
    "keys that begin otherwise": (
        lambda state: [inner := dict(state), state.clear(), state.update({f"my.{k}": t for k, t in inner.items()})],
        "the keys of the hooks have the prefix 'my.'\n"
        "  remedy: remove it: {k.removeprefix('my.'): t for k, t in sd.items()}"),
    "a header of any size": (put(HEADER, lambda _: torch.zeros(2 << 20, dtype=torch.uint8)),
        "the header has 2097152 bytes, but the limit is 1048576"),
    "a plan that cannot be": (sealed_with(lambda said, _: said["plan"]["hooks"][0].update(at="gradient")),
        "hook 'n': the saved plan cannot be read: the point 'gradient' does not exist; the nearest are 'grad' and "
        "'grad_final'"),
    **{name: (sealed_with(change), f"hook 'n': the saved state is damaged: its {what} cannot be read\n"
        "  remedy: load an earlier checkpoint") for name, (what, change) in MEANINGLESS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_and_nothing_is_loaded(name):
    change, text = UNREADABLE[name]
    run, model = small(2), Net()
    before = run.rig.state_dict()
    state = copied(before)
    change(state)
    for ask in (run.rig.load_state_dict, lambda given: th.restore(model, given, actions=ACTIONS)):
        with pytest.raises(th.StateError) as error:
            ask(state)
        assert type(error.value) is th.StateError and str(error.value) == text
    same(run.rig.state_dict(), before)
    assert not th.inventory(model)
