"""Test `rig.load_state_dict()`: the rig keeps its plan, and every difference from the saved state is reported."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tests.keep.conftest import (
    ACTIONS,
    PLAN,
    TENSORS,
    Net,
    Run,
    attached,
    build,
    copied,
    counters,
    fired,
    fresh,
    header,
    identical,
    raw,
    resealed,
    same,
)


def loaded(run: Run, state: dict[str, Tensor], plan: Any = PLAN) -> Run:
    """Make a new model and optimizer, attach the program's plan, and load the saved state, as a new process does."""
    model, optimizer = fresh(run)
    rig = th.attach(model, plan, optimizer=optimizer, actions=ACTIONS, tensors=TENSORS)
    report = rig.load_state_dict(state)
    assert not report and report.notes == [] and str(report) == "all of the state was loaded"
    return Run(model, optimizer, rig)


def changed(**changes: th.Hook) -> th.Plan:
    """Return the plan with other hooks under some of its ids."""
    return th.Plan(changes.get(hook.id, hook) for hook in PLAN)


# -- continuing a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_it_goes_on_bit_for_bit(steps):
    run = attached().train(range(steps))
    twin = loaded(run, run.rig.state_dict())
    same(twin.state(), run.state())
    assert counters(twin.rig) == counters(run.rig)
    for step in range(steps, steps + 4):
        run.train([step])
        twin.train([step])
        same(twin.state(), run.state())
        assert twin.rig.values("spike") == run.rig.values("spike")
        assert twin.rig.step_count == step + 1


def test_it_goes_on_in_the_middle_of_a_step(midway: Run):
    twin = loaded(midway, midway.rig.state_dict())
    same(twin.state(), midway.state())
    for one in (midway, twin):
        one.backward(7, 1)
        one.optimizer.step()
    assert twin.rig.values("stats") == midway.rig.values("stats")
    assert twin.rig.values("stats")["embed.weight"]["norm"] > 0
    for one in (midway, twin):
        one.train([8, 9])
    same(twin.state(), midway.state())


@pytest.mark.parametrize("steps", [1, 7, 12])
def test_into_a_rig_that_has_run(steps, midway: Run):
    state = midway.rig.state_dict()
    twin = attached().train(range(steps))
    twin.rig.mute("zscore")
    model, optimizer = fresh(midway)
    twin.model.load_state_dict(model.state_dict())
    twin.optimizer.load_state_dict(optimizer.state_dict())
    for mine, theirs in zip(twin.model.parameters(), model.parameters()):
        mine.grad = theirs.grad
    assert not twin.rig.load_state_dict(state)
    same(twin.rig.state_dict(), state)
    assert counters(twin.rig) == counters(midway.rig)
    for one in (midway, twin):
        one.backward(7, 1)
        one.optimizer.step()
        one.train([8, 9, 10])
    same(twin.state(), midway.state())


def test_a_rig_that_has_run_can_be_set_back_to_its_beginning():
    plan = [hook for hook in PLAN if hook.id != "taps"]
    run, first = attached(plan).train(range(7)), attached(plan)
    run.backward(7, 0)
    assert not run.rig.load_state_dict(first.rig.state_dict())
    same(run.rig.state_dict(), first.rig.state_dict())
    assert counters(run.rig) == counters(first.rig)


def test_what_belongs_to_another_rank_is_left_to_it(run: Run):
    state = run.rig.state_dict()
    others = {key.replace("rank0", "rank1"): torch.zeros_like(t) for key, t in state.items()}
    other = attached()
    assert not other.rig.load_state_dict(state | others)
    same(other.rig.state_dict(), state)


def test_a_rank_whose_state_was_not_saved_takes_the_first_ones(run: Run, monkeypatch: pytest.MonkeyPatch):
    state, other = run.rig.state_dict(), attached()
    monkeypatch.setattr("tenterhook.ranks.rank", lambda: 3)
    assert not other.rig.load_state_dict(state)
    same({key.replace("rank3", "rank0"): t for key, t in other.rig.state_dict().items()}, state)


def test_what_was_saved_on_more_ranks_goes_on_where_it_is_of_the_whole(run: Run):
    state = resealed(run.rig.state_dict(), lambda said, _: said.update(sharded=True, ranks=2))
    other = attached()
    report = other.rig.load_state_dict(state, strict=False)
    told = [str(difference) for difference in report.differences] + report.notes
    assert other.rig.step_count == run.rig.step_count
    shards, dropped = "shards from 2 ranks, but the world size is 1", "the state of ranks 1 to 1 is dropped"
    assert all(shards in one or dropped in one for one in told)
    assert any(dropped in one for one in told), told


def test_entries_may_be_parameters(run: Run):
    state = run.rig.state_dict()
    given = {key: nn.Parameter(t, requires_grad=t.is_floating_point()) for key, t in state.items()}
    other = attached()
    assert not other.rig.load_state_dict(given)
    assert not any(t.requires_grad for t in other.rig._attached_hook("momentum").state.free.values())
    same(other.rig.state_dict(), state)


def test_the_same_state_can_be_loaded_again_and_again(run: Run):
    state = run.rig.state_dict()
    before = copied(state)
    twins = [loaded(run, state)]
    twins[0].train([6, 7])
    same(state, before)
    twins.append(loaded(run, state))
    twins[1].rig.load_state_dict(state)
    run.train([6, 7])
    twins[1].train([6, 7])
    same(state, before)
    for twin in twins:
        same(twin.state(), run.state())


def test_by_id_and_name_whatever_the_order(run: Run):
    class Reversed(Net):
        """Have the same parameters in reverse order."""

        def __init__(self) -> None:
            super().__init__()
            for name, module in list(self._modules.items())[::-1]:
                del self._modules[name]
                self._modules[name] = module

    model, optimizer = build(Reversed)
    rig = th.attach(model, list(PLAN)[::-1], optimizer=optimizer, actions=ACTIONS, tensors=TENSORS)
    assert not rig.load_state_dict(run.rig.state_dict())
    assert list(rig.ledger) == [hook.id for hook in PLAN][::-1]
    assert next(iter(rig.ledger["zscore"])) == "head.weight"
    assert counters(rig) == counters(run.rig)
    theirs, mine = run.rig.state_dict(), rig.state_dict()
    names = [raw(s["tenterhook/rank0/targets/zscore"]).split(b"\0") for s in (theirs, mine)]
    for name in ("mean", "var", "seen"):
        key = f"tenterhook/rank0/state/zscore/{name}"
        assert dict(zip(names[0], theirs[key].tolist())) == dict(zip(names[1], mine[key].tolist()))
    key = "tenterhook/rank0/free/momentum/float32/2/velocity"
    assert identical(theirs[key], mine[key])


# -- counters, dormant and muted sites --------------------------------------------------------------------------------


def test_every_counter_is_exact():
    actions = th.Registry()

    @th.action("third_time", registry=actions, at=["grad"], state={"n": 0.0})
    def third_time(g: Tensor, ctx: th.Context) -> None:
        ctx.state["n"] = ctx.state["n"] + 1
        if ctx.target == "a.weight" and ctx.state["n"] == 3:
            raise ValueError("the third time")

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(1, 1, bias=False) for _ in range(3))

        def forward(self, x: Tensor, *, both: bool = True) -> Tensor:
            return self.a(x) + self.b(x) + self.c(x) if both else self.a(x)

    plan = [
        th.Hook("fails", on="**", at="grad", do=third_time),
        th.Hook("scaled", on=("a.*", "b.*"), at="grad_final", do=th.scale(2.0), when=th.When(every=2)),
        th.Hook("evaluated", on="b", at="output", do=th.stats()),
    ]

    def attach() -> tuple[nn.Module, torch.optim.Optimizer, th.Rig]:
        model = Two()
        model.c.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, optimizer, th.attach(model, plan, optimizer=optimizer, actions=actions)

    model, optimizer, rig = attach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(5):
            optimizer.zero_grad()
            if step == 2:
                model.b.weight = nn.Parameter(torch.ones(1, 1))
                optimizer.param_groups[0]["params"] = list(model.parameters())
            model(torch.ones(1, 1), both=step != 4).sum().backward()
            model.eval()(torch.ones(1, 1))
            model.train()
            optimizer.step()
    muted = "muted: its action third_time raised ValueError: the third time (step 2)"
    skipped = "no gradient at the optimizer's step"
    out = "the root is in eval mode (When(phase='any') fires in both)"
    expected = {
        # due, fired, changed, failed, rebound, first, last, skipped, dormant
        ("fails", "a.weight"): (2, 2, 0, 1, 0, 0, 1, {}, muted),
        ("fails", "b.weight"): (5, 4, 0, 0, 1, 0, 3, {}, None),
        ("fails", "c.weight"): (0, 0, 0, 0, 0, -1, -1, {}, "frozen"),
        ("scaled", "a.weight"): (3, 3, 3, 0, 0, 0, 4, {}, None),
        ("scaled", "b.weight"): (3, 2, 2, 0, 1, 0, 2, {skipped: 1}, None),
        ("evaluated", "b"): (5, 4, 0, 0, 0, 0, 3, {out: 5}, None),
    }
    assert counters(rig) == expected
    other, optimizer, again = attach()
    report = again.load_state_dict(rig.state_dict())
    assert not report and counters(again) == expected
    assert [account.due for account in again.ledger.values()] == [5, 3, 5]
    assert again.step_count == 5
    same(again.state_dict(), rig.state_dict())
    again.unmute("fails")
    other.c.requires_grad_(True)
    other(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    assert counters(again) == expected | {
        ("fails", "a.weight"): (3, 3, 0, 1, 0, 0, 5, {}, None),
        ("fails", "b.weight"): (6, 5, 0, 0, 1, 0, 5, {}, None),
        ("fails", "c.weight"): (1, 1, 0, 0, 0, 5, 5, {}, None),
        ("evaluated", "b"): (6, 5, 0, 0, 0, 0, 5, {out: 5}, None),
    }


def test_a_muted_hook_stays_muted(run: Run):
    run.rig.mute("noise")
    run.train([6])
    twin = loaded(run, run.rig.state_dict())
    assert twin.rig.ledger["noise"]["head.weight"].state == "muted"
    for one in (run, twin):
        one.train([7])
        one.rig.unmute("noise")
        one.train([8])
    assert twin.rig.ledger["noise"].due == 7 and twin.rig.ledger["noise"]["head.weight"].last == 8
    same(twin.state(), run.state())


@pytest.mark.filterwarnings("ignore:tenterhook muted a hook:RuntimeWarning")
def test_a_site_falls_silent_and_speaks_again_with_the_state():
    broken = False

    def fail(g: Tensor, ctx: th.Context) -> None:
        if broken and ctx.target == "weight":
            raise ValueError("no")

    run = fired(fail)
    site, before = run.rig.ledger["h"]["weight"], run.rig.state_dict()
    broken = True
    run.model(torch.ones(1, 2)).sum().backward()
    silent = run.rig.state_dict()
    assert (site.state, site.installed, site.fired) == ("dormant", False, 1)
    broken = False
    for state, expected in ((before, ("installed", True, 2)), (silent, ("dormant", False, 1))):
        run.rig.load_state_dict(state)
        run.model(torch.ones(1, 2)).sum().backward()
        assert (site.state, site.installed, site.fired) == expected


@pytest.mark.parametrize("step", [3, 4, 5, 6])
def test_when_goes_on(step):
    """Check a hook that a trigger enables for two steps in step 3, and a hook that is due in every third step."""

    def attach() -> tuple[nn.Module, torch.optim.Optimizer, th.Rig, list[int]]:
        model, seen = nn.Linear(1, 1), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        plan = [
            th.Hook("watch", on="weight", at="grad", do=th.watch_nonfinite()),
            th.Hook("after", on="weight", at="grad_final", do=th.stats(), when=th.When(after_trip=2)),
            th.Hook("third", on="weight", at="grad_final", do=th.stats(), when=th.When(every=3, start=1, stop=8)),
        ]
        sink = lambda values, at: seen.extend(f"{at} {key}" for key in values if key.endswith("rms"))
        return model, optimizer, th.attach(model, plan, optimizer=optimizer, sinks=sink), seen

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for i in steps:
            optimizer.zero_grad()
            model(torch.full((1, 1), torch.inf if i == 3 else 1.0)).sum().backward()
            optimizer.step()

    model, optimizer, rig, before = attach()
    train(model, optimizer, range(step))
    state = rig.state_dict()
    assert rig.flush()
    other, optimizer, rig, after = attach()
    assert not rig.load_state_dict(state)
    train(other, optimizer, range(step, 12))
    assert rig.flush()
    due = {"after": [4, 5], "third": [1, 4, 7]}
    assert sorted(before + after) == sorted(f"{at} {id}/weight/rms" for id, steps in due.items() for at in steps)
    assert {at.split()[0] for at in before} <= set("0123456"[:step])


# -- the rig keeps its plan -------------------------------------------------------------------------------------------


def test_the_plan_of_the_code_stays_and_what_it_changed_is_noted(run: Run):
    plan = th.Plan(
        [
            *changed(
                zscore=th.Hook("zscore", on="**", at="grad_final", do=th.clip_zscore(z=9.0, warmup=2), expect=8),
                noise=th.Hook("noise", on="**.weight", at="grad", do=th.noise(0.01), when=th.When(every=2)),
                drift=th.Hook("drift", on=("blocks.0", "blocks.1"), at="output", do=ACTIONS.get("drift")()),
                spike=th.Hook("spike", on="head.weight", at="grad_final", do=th.spike(z=0.5, warmup=2),
                              on_error="raise"),
            ).hooks[:-1],
            th.Hook("new", on="**", at="grad", do=th.stats()),
        ]
    )  # fmt: skip
    model, optimizer = fresh(run)
    rig = th.attach(model, plan, optimizer=optimizer, actions=ACTIONS, tensors=TENSORS)
    report = rig.load_state_dict(run.rig.state_dict())
    assert not report and report.differences == [] and rig.plan == plan
    every = "When(every=1, start=0, stop=None, phase=None, after_trip=None)"
    assert str(report).splitlines() == [
        "all of the state was loaded",
        "  note: hook 'zscore': do was clip_zscore(warmup=2, z=0.5) and is now clip_zscore(z=9.0, warmup=2)",
        "  note: hook 'zscore': expect was None and is now 8",
        f"  note: hook 'noise': when was {every} and is now {every.replace('every=1', 'every=2')}",
        "  note: hook 'drift': on was blocks.* and is now ('blocks.0', 'blocks.1')",
        "  note: hook 'spike': on_error was None and is now raise",
        "  note: hook 'stats': saved, but not in this plan",
        "  note: hook 'new': in this plan, but not saved, so it starts without state",
    ]
    theirs, mine = run.rig.state_dict(), rig.state_dict()
    kept = [key for key in theirs if "stats" not in key and key != "tenterhook/rank0/header"]
    same({key: theirs[key] for key in kept}, {key: mine[key] for key in kept})
    assert rig.ledger["new"].fired == 0 and rig.step_count == 6


def test_a_module_of_another_class_is_noted():
    class Own(nn.Linear):
        pass

    class Other(Net):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = Own(3, 4), Own(4, 2)

    hook = th.Hook("n", on=("embed", "head", "blocks.0"), at="output", do=ACTIONS.get("count")())
    run, other = attached(hook).train(range(2)), attached(hook, Other)
    report = other.rig.load_state_dict(run.rig.state_dict())
    assert not report and report.notes == [
        "hook 'n': 'embed' was Linear and is now Own, and 1 more changed class"
    ]  # fmt: skip
    assert counters(other.rig) == counters(run.rig)


def test_steps_that_the_program_counts_are_counted_by_it_again():
    run, other = (attached(th.Hook("n", on="**", at="grad", do=ACTIONS.get("count")())) for _ in range(2))
    for i in range(2):
        with run.rig.step():
            run.train([i])
    assert not other.rig.load_state_dict(run.rig.state_dict())
    other.train([2])
    assert other.rig.step_count == 2
    with other.rig.step():
        other.train([2])
    assert other.rig.step_count == 3


def test_notes_on_what_else_decides_the_bits(run: Run):
    def elsewhere(said: dict[str, Any], entries: dict[str, Tensor]) -> None:
        said.update(torch="2.9.1", cpu="AVX2", threads=64, python="3.10")
        said["hooks"]["momentum"]["fingerprint"] = "0" * 16

    here, python = torch.backends.cpu.get_cpu_capability(), header(run.rig.state_dict())["python"]
    other = attached()
    report = other.rig.load_state_dict(resealed(run.rig.state_dict(), elsewhere))
    assert not report
    assert report.notes == [
        f"hook 'momentum': 'momentum' was saved under Python 3.10, but this is Python {python}, "
        "so the code cannot be compared",
        f"torch was 2.9.1 and is now {torch.__version__.partition('+')[0]}, so results may differ in the last bits",
        f"cpu was AVX2 and is now {here}, so results may differ in the last bits",
        f"threads was 64 and is now {torch.get_num_threads()}, so results may differ in the last bits",
    ]


# -- no state, or state in an unexpected place ------------------------------------------------------------------------

NO_STATE = "the checkpoint holds no hook state, so nothing was loaded; pass what rig.state_dict() returned"


@pytest.mark.parametrize("given", [{}, {"model": {}}, {"embed.weight": torch.ones(2), 3: torch.ones(1)}])
def test_a_checkpoint_without_hooks_is_said_once(given):
    run = attached()
    before = run.rig.state_dict()
    with pytest.warns() as warned:
        report = run.rig.load_state_dict(given)
    assert [(w.category, str(w.message), w.filename) for w in warned] == [
        (RuntimeWarning, f"tenterhook: {NO_STATE}", __file__)
    ]
    assert not report and report.notes == [NO_STATE]
    assert str(report).startswith("nothing was loaded\n  note: ") and run.rig.loaded is report
    same(run.rig.state_dict(), before)


@pytest.mark.parametrize(("given", "kind"), [(None, "NoneType"), ([], "list"), (nn.Linear(1, 1), "Linear")])
def test_what_is_no_state_dict(given, kind, run: Run):
    with pytest.raises(th.StateError) as error:
        run.rig.load_state_dict(given)
    assert str(error.value) == (
        f"the state must be a mapping, but its type is {kind}\n  remedy: pass the dict that rig.state_dict() returned"
    )


def test_a_rig_that_was_taken_off_can_be_saved_but_not_loaded(run: Run):
    state = run.rig.state_dict()
    run.rig.detach()
    same(run.rig.state_dict(), state)
    with pytest.raises(th.AttachedError) as error:
        run.rig.load_state_dict(state)
    assert str(error.value) == "the rig was detached\n  remedy: attach the plan again"


def test_a_rig_whose_model_is_gone_is_not_saved_as_if_it_had_no_parameters():
    rig = attached().rig
    with pytest.raises(th.AttachedError):
        rig.state_dict()


# -- state that would be lost silently --------------------------------------------------------------------------------


def test_a_hook_that_was_not_saved_begins_anew_in_a_rig_that_has_run():
    new = th.Hook("new", on="**.bias", at="grad", do=th.stats())
    old = attached(list(PLAN)).train(range(3))
    run = attached([*PLAN, new]).train(range(5))
    report = run.rig.load_state_dict(old.rig.state_dict())
    assert report.notes == ["hook 'new': in this plan, but not saved, so it starts without state"]
    run.train(range(3, 6))
    assert {site.fired for site in run.rig.ledger["new"].values()} == {6}
    assert run.rig.ledger["new"].due == 3


def test_taps_that_the_plan_no_longer_selects_are_a_difference(run: Run):
    narrow = changed(taps=th.Hook("taps", on="blocks.0:act", at="value_grad", do=PLAN["taps"].do))
    other = attached(narrow)
    with pytest.raises(th.MismatchError) as error:
        other.rig.load_state_dict(run.rig.state_dict())
    assert "hook 'taps' on 'blocks.1:act': saved, but not on this model" in str(error.value)


def test_two_taps_that_are_renamed_to_one_are_a_difference(run: Run):
    other = attached()
    with pytest.raises(th.MismatchError) as error:
        other.rig.load_state_dict(run.rig.state_dict(), rename={"blocks.1": "blocks.0"})
    assert {(d.hook, d.target) for d in error.value.report.differences} >= {("taps", "blocks.1:act")}
