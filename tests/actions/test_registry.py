"""A registry maps names to actions and checks their contracts."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import tenterhook as th
from tenterhook.actions import Definition


def fresh() -> th.Registry:
    return th.Registry()


def test_a_decorated_function_makes_actions():
    @th.action("twice", modifies=True, registry=fresh())
    def twice(x: Tensor, *, by: float = 2.0) -> Tensor:
        return x * by

    assert twice(3.0) == th.Action("twice", {"by": 3.0}) == twice(by=3.0)
    assert str(twice(by=3.0)) == "twice(by=3.0)"
    assert repr(twice) == "<action twice(by: 'float' = 2.0)>"


def test_a_registered_function_may_be_named_without_being_called():
    @th.action("bare", registry=fresh())
    def bare(x: Tensor) -> None: ...

    assert th.Hook("h", on="**", at="grad", do=bare).do == th.Action("bare", {})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: th.clip_value("1"), "clip_value: max='1': max must be float, got str"),
        (lambda: th.clip_value(True), "clip_value: max=True: max must be float, got bool"),
        (lambda: th.clip_value(-1.0), "clip_value: max=-1.0: max must be float > 0.0"),
        (lambda: th.clip_value(), "clip_value: missing a required argument: 'max'"),
        (lambda: th.clip_norm(1.0, over="all"), "clip_norm: over='all': over must be one of 'target', 'hook'"),
        (lambda: th.scale(1.0, 2.0), "scale: too many positional arguments"),
    ],
)
def test_parameters_are_checked_when_they_are_given(make, text):
    with pytest.raises(th.ActionError) as error:
        make()
    assert error.value.fact == text
    assert error.value.remedy.startswith(("call it as ", 'write over="hook"'))


def test_an_unknown_action_is_refused_and_nothing_is_imported(mlp):
    before = set(sys.modules)
    with pytest.raises(th.ActionError) as error:
        th.attach(mlp, [th.Hook("h", on="**", at="grad", do=th.Action("clip_valu", {"max": 1}))])
    assert str(error.value) == (
        "hook 'h' at grad: the action 'clip_valu' is not registered; the nearest is 'clip_value'\n"
        "  remedy: write 'clip_value'; for an action of your own, first import the module that contains "
        '@th.action("clip_valu"), or pass --actions MODULE to the command. A plan never imports code'
    )
    with pytest.raises(th.ActionError):
        th.attach(mlp, [th.Hook("h", on="**", at="grad", do=th.Action("antigravity", {}))])
    assert "antigravity" not in set(sys.modules) - before


def test_another_action_of_the_same_name_is_an_error_a_newer_version_is_not():
    registry = fresh()

    @th.action("mine", registry=registry)
    def first(x: Tensor) -> None: ...

    @th.action("mine", registry=registry)
    def again(x: Tensor) -> None: ...

    with pytest.raises(th.ActionError, match=r"another action 'mine' is already registered at .*test_registry\.py:"):

        @th.action("mine", registry=registry)
        def other(x: Tensor) -> None:
            x.sum()

    @th.action("mine", registry=registry, version=2)
    def newer(x: Tensor) -> None:
        x.sum()

    assert registry.get("mine").version == 2


def test_a_parameter_without_a_type_is_refused():
    with pytest.raises(th.ActionError, match="the parameter 'k' of the action 'untyped' has no type annotation"):

        @th.action("untyped", registry=fresh())
        def untyped(x: Tensor, *, k=1) -> None: ...


def test_measure_needs_partials():
    with pytest.raises(th.ActionError, match="has measure= but not partials="):
        Definition("m", lambda x, ctx: x, at=("grad",), modifies=True, measure=lambda x: {})


def test_fingerprints_distinguish_code_without_its_source():
    code = "def f(x, *, k: float = 1.0):\n    return x * {}\n"
    made = []
    for text in (code.format("k"), "\n\n" + code.format("k"), code.format("k + 1")):
        space: dict = {}
        exec(compile(text, "<nowhere>", "exec"), space)
        made.append(Definition("f", space["f"], at=("grad",), modifies=True).fingerprint)
    assert made[0] == made[1] != made[2]


def test_fingerprints_are_the_same_in_another_process():
    program = "import tenterhook as th; print(th.clip_zscore.fingerprint, th.stats.fingerprint)"
    runs = {subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
            for _ in range(2)}  # fmt: skip
    assert runs == {f"{th.clip_zscore.fingerprint} {th.stats.fingerprint}\n"}


def test_a_tensor_parameter_is_named_in_the_plan_and_given_at_attach(mlp, sgd, train):
    plan = th.Plan([th.Hook("s", on="head", at="output", do=th.steer("v"))])
    assert plan.to_json() == '{"hooks":[{"at":"output","do":{"steer":{"by":"v"}},"id":"s","on":"head"}],"tenterhook":1}'
    with pytest.raises(th.ActionError) as error:
        th.attach(mlp, plan)
    assert str(error.value) == (
        "hook 's' at output: steer needs the tensor 'v', which was not passed\n"
        '  remedy: pass the tensor: attach(..., tensors={"v": ...})'
    )
    bare = mlp(torch.zeros(1, 4))
    th.attach(mlp, plan, tensors={"v": torch.ones(2)})
    assert torch.equal(mlp(torch.zeros(1, 4)), bare + 1)


def test_a_custom_two_phase_action_over_the_hook(mlp, sgd, train):
    registry = fresh()

    @th.action("unit_max", modifies=True, at="grad_final", measure=lambda x: {"top": x.abs().max()},
               partials={"top": "max"}, registry=registry)  # fmt: skip
    def unit_max(x: Tensor, ctx: th.Context, *, over: str = "hook") -> Tensor:
        return x / ctx.merged["top"]

    th.attach(mlp, [th.Hook("u", on="**", at="grad_final", do=unit_max())], optimizer=sgd, actions=registry)
    train(mlp, sgd, 1)
    assert max(p.grad.abs().max().item() for p in mlp.parameters()) == 1.0


def test_a_tensor_is_named_after_its_hook():
    v = torch.ones(2)
    steer = th.steer(v, scale=2.0)
    first, second = (th.Hook(id, on=".", at="output", do=steer) for id in ("a", "b.c"))
    assert (first.do, str(second.do)) == (
        th.Action("steer", {"by": "a.by", "scale": 2.0}, tensors={"a.by": v}),
        "steer(by='b.c.by', scale=2.0)",
    )
    assert th.Plan.from_json(th.Plan([first]).to_json())["a"].do == th.Action("steer", {"by": "a.by", "scale": 2.0})
    assert th.steer(v) == th.steer(v) != th.steer(v.clone())


def test_tensors_are_used_saved_and_restored_without_being_passed_again():
    def plan(scale: float) -> list[th.Hook]:
        return [
            th.Hook("one", on=".", at="output", do=th.steer(torch.tensor([1.0, 0.0]) * scale)),
            th.Hook("two", on=".", at="output", do=th.mask(torch.tensor([1.0, 5.0]))),
        ]

    model = nn.Identity()
    rig = th.attach(model, plan(1.0))
    assert model(torch.ones(2)).tolist() == [2.0, 5.0]
    state = rig.state_dict()
    rig.revise(th.Plan(plan(10.0)))
    assert model(torch.ones(2)).tolist() == [11.0, 5.0]
    rig.detach()
    other = nn.Identity()
    th.restore(other, state)
    assert other(torch.ones(2)).tolist() == [2.0, 5.0]


def test_a_tensor_for_a_hook_on_a_tensor():
    x = torch.ones(2, requires_grad=True)
    with th.hook(x, th.mask(torch.tensor([0.0, 3.0]))):
        x.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 3.0]


def test_by_default_an_action_has_the_name_of_its_function():
    @th.action(modifies=True, registry=fresh())
    def halved(x: Tensor) -> Tensor:
        return x / 2

    assert halved() == th.Action("halved", {})


@pytest.mark.parametrize(
    ("contract", "text"),
    [
        (
            {"at": "gradfinal"},
            "the action 'own': the point 'gradfinal' does not exist; the nearest is 'grad_final'\n"
            '  remedy: write at="grad_final", or run `tenterhook points` to list all points',
        ),
        (
            {"trigger": True},
            "the action 'own' has trigger=True, but only a two-phase observer can trip\n"
            '  remedy: give it measure= and partials=, and return "trip" with its results',
        ),
        (
            {"state": {"mean": torch.zeros(3)}},
            "the action 'own' declares state of type Tensor, but declared state consists of numbers\n"
            '  remedy: declare one number for each name, as in state={"mean": 0.0}. Store tensors in ctx.state without '
            "declaring them",
        ),
        (
            {"state": ["mean"]},
            "the action 'own' declares state of type list, but declared state consists of numbers\n"
            '  remedy: declare one number for each name, as in state={"mean": 0.0}. Store tensors in ctx.state without '
            "declaring them",
        ),
    ],
)
def test_a_wrong_contract_is_refused_at_registration(contract, text):
    with pytest.raises(th.ActionError) as error:
        th.action("own", registry=fresh(), **contract)(lambda x: None)
    assert str(error.value) == text


def test_a_built_in_name_cannot_be_reused():
    with pytest.raises(th.ActionError) as error:
        th.action("scale", registry=fresh())(lambda x: None)
    assert error.value.remedy == "give the new action a different name"


def test_the_generator_of_a_hook_needs_no_arguments_and_leaves_the_global_one(mlp):
    drawn = []

    @th.action("draws", registry=(registry := fresh()))
    def draws(x: Tensor, ctx: th.Context) -> None:
        drawn.append(torch.randn(2, generator=ctx.generator()))

    th.attach(mlp, th.Hook("h", on="**.weight", at="grad", do=draws()), actions=registry)
    torch.manual_seed(3)
    x = torch.randn(2, next(mlp.parameters()).shape[1])
    expected = torch.randn(1)
    torch.manual_seed(3)
    torch.randn_like(x)
    mlp(x).sum().backward()
    assert len(drawn) > 1 and not torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.randn(1), expected)


def test_parameters_after_a_slash_may_be_passed_by_position():
    registry = th.Registry()

    @th.action("own", registry=registry, modifies=True)
    def own(x: Tensor, ctx: th.Context, /, by: float, *, offset: float = 0.0) -> Tensor:
        assert ctx.target == "."
        return x * by + offset

    assert own(2.0) == own(by=2.0) == th.Action("own", {"by": 2.0})
    with pytest.raises(th.ActionError, match="too many positional arguments"):
        own(2.0, 1.0)
    with pytest.raises(th.ActionError, match="missing a required argument: 'by'"):
        own()
    model = nn.Linear(1, 1)
    with th.hook(model, own(2.0, offset=1.0), actions=registry):
        out = model(torch.ones(1, 1))
    assert torch.equal(out, model(torch.ones(1, 1)) * 2.0 + 1.0)


def test_one_argument_before_a_slash_is_the_value():
    registry = th.Registry()

    @th.action("own", registry=registry, modifies=True)
    def own(x: Tensor, /, by: float) -> Tensor:
        return x * by

    model = nn.Linear(1, 1)
    with th.hook(model, own(3.0), actions=registry):
        out = model(torch.ones(1, 1))
    assert torch.equal(out, model(torch.ones(1, 1)) * 3.0)
