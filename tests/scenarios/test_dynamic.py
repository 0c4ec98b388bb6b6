"""Compares plain PyTorch with tenterhook on the questions D1 to D6: hooks on live tensors."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

import tenterhook as th


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


def positive_net() -> nn.Sequential:
    model = net()
    for parameter in model.parameters():
        parameter.data.abs_()
    return model


def one_weight() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


# -- D1: log the norm of a gradient ------------------------------------------------------------------------------------


def test_d1_the_gradient_is_two_and_its_norm_four() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    plain: list[float] = []
    ours: list[float] = []
    x.register_hook(lambda g: plain.append(g.norm().item()))
    handle = th.hook(x, lambda g: ours.append(g.norm().item()))
    (2 * x).sum().backward()
    assert plain == ours == [4.0]
    assert torch.equal(x.grad, torch.full((2, 2), 2.0))
    assert (handle.fired, handle.changed) == (1, 0)


@pytest.mark.parametrize("do", [th.stats(), th.capture(), th.spike()], ids=str)
def test_d1_a_recording_action_is_refused_on_a_tensor(do: th.Action) -> None:
    with pytest.raises(th.RefusedError):
        th.hook(leaf(1.0), do)


@pytest.mark.parametrize(
    "meant_for_models",
    [{"on": "weight"}, {"at": "output"}, {"when": th.When(every=10)}, {"expect": 7}],
    ids=lambda given: next(iter(given)),
)
def test_d1_an_option_that_a_tensor_does_not_have_is_refused(meant_for_models: dict[str, object]) -> None:
    with pytest.raises(th.TenterhookError):
        th.hook(leaf(1.0), lambda g: None, **meant_for_models)


# -- D3: an action that sees the value, and does not keep the graph ----------------------------------------------------


def by_sign(grad: Tensor, value: Tensor) -> Tensor:
    if (value > 0).all():
        return grad * 2.0
    return grad * 0.5 if (value < 0).all() else grad


@pytest.mark.parametrize(("start", "factor"), [((1.0, 2.0), 2.0), ((-1.0, -2.0), 0.5), ((-1.0, 2.0), 1.0)])
def test_d3_the_action_sees_the_value(start: tuple[float, float], factor: float) -> None:
    plain, ours = leaf(*start), leaf(*start)
    y = plain * 3
    y.register_hook(lambda g: by_sign(g, y))
    y.sum().backward()
    z = ours * 3
    th.hook(z, lambda g, ctx: by_sign(g, ctx.value))
    z.sum().backward()
    assert torch.equal(ours.grad, plain.grad)
    assert torch.equal(ours.grad, torch.full((2,), 3 * factor))


def test_d3_the_same_as_a_named_action_on_a_module() -> None:
    @th.action("by_sign", registry=(registry := th.Registry()), modifies=True, needs_value=True)
    def named(grad: Tensor, ctx: th.Context) -> Tensor:
        return by_sign(grad, ctx.value)

    plain, ours = positive_net(), positive_net()
    x = torch.ones(1, 2)
    out = plain[0](x)
    out.register_hook(lambda g: by_sign(g, out))
    plain[1](out).sum().backward()
    with th.attach(ours, [th.Hook("sign", on="0", at="grad_output", do=named)], actions=registry) as rig:
        ours(x).sum().backward()
        assert rig.ledger["sign"].changed == 1
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(plain.parameters(), ours.parameters()))


def test_d3_the_graph_is_not_kept_alive() -> None:
    def plainly(y: Tensor) -> object:
        return y.register_hook(lambda g: by_sign(g, y))

    def with_us(y: Tensor) -> object:
        return th.hook(y, lambda g, ctx: by_sign(g, ctx.value))

    def kept(register: Callable[[Tensor], object]) -> tuple[weakref.ref, object]:
        y = leaf(1.0, 2.0) * 3
        handle = register(y)
        y.sum().backward()
        return weakref.ref(y), handle

    in_a_cycle, plain_handle = kept(plainly)
    free, _ours = kept(with_us)
    gc.collect()
    assert in_a_cycle() is not None
    assert free() is None
    plain_handle.remove()
    gc.collect()
    assert in_a_cycle() is None


def test_d3_the_graph_is_not_kept_alive_by_a_rig() -> None:
    @th.action("by_sign", registry=(registry := th.Registry()), modifies=True, needs_value=True)
    def named(grad: Tensor, ctx: th.Context) -> Tensor:
        return by_sign(grad, ctx.value)

    seen = []
    model = positive_net()
    model[0].register_forward_hook(lambda m, args, out: seen.append(weakref.ref(out)))
    with th.attach(model, [th.Hook("sign", on="0", at="grad_output", do=named)], actions=registry) as rig:
        model(torch.ones(1, 2)).sum().backward()
        gc.collect()
        assert rig.ledger["sign"].changed == 1
        assert seen[0]() is None


def test_d3_a_handle_does_not_hold_the_value() -> None:
    values = []
    handles = []
    for _ in range(3):  # like a loop that keeps its handles
        y = leaf(1.0, 2.0) * 3
        handles.append(th.hook(y, lambda g, ctx: values.append(weakref.ref(ctx.value))))
        y.sum().backward()
    del y
    gc.collect()
    assert [value() for value in values] == [None, None, None]


# -- D4: one tensor, two uses ------------------------------------------------------------------------------------------


def test_d4_a_tensor_used_twice_fires_once() -> None:
    x = leaf(1.0, 2.0)
    y = x * 2
    plain: list[Tensor] = []
    ours: list[Tensor] = []
    y.register_hook(plain.append)
    handle = th.hook(y, ours.append)
    ((y * 3).sum() + (y * 4).sum()).backward()
    assert handle.fired == len(plain) == len(ours) == 1
    assert torch.equal(plain[0], torch.tensor([7.0, 7.0]))
    assert torch.equal(ours[0], plain[0])


# -- D5: adding and removing -------------------------------------------------------------------------------------------


def test_d5_between_forward_and_backward_a_tensor_hook_takes_effect_at_once() -> None:
    plain, ours = leaf(1.0), leaf(1.0)
    y, z = plain * 2, ours * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g * 100).remove()
    th.hook(z, lambda g: g * 10)
    th.hook(z, lambda g: g * 100).remove()
    y.sum().backward()
    z.sum().backward()
    assert plain.grad == ours.grad == 20.0


def test_d5_between_forward_and_backward_a_parameter_hook_takes_effect_at_once() -> None:
    plain, ours = one_weight(), one_weight()
    x = torch.ones(1, 1)
    with th.attach(ours, [th.Hook("gone", on="weight", at="grad", do=th.scale(100.0))]) as rig:
        gone = plain.weight.register_hook(lambda g: g * 100)
        loss, other = plain(x).sum(), ours(x).sum()
        gone.remove()
        plain.weight.register_hook(lambda g: g * 10)
        rig.remove("gone")
        rig.add(th.Hook("new", on="weight", at="grad", do=th.scale(10.0)))
        loss.backward()
        other.backward()
    assert plain.weight.grad == ours.weight.grad == 10.0


def test_d5_a_module_backward_hook_waits_for_the_next_forward() -> None:
    plain, ours = one_weight(), one_weight()
    x = torch.ones(1, 1, requires_grad=True)
    seen: list[str] = []
    loss = plain(x).sum()
    handle = plain.register_full_backward_pre_hook(lambda m, g: seen.append("plain"))
    loss.backward()
    assert seen == []
    plain(x).sum().backward()
    assert seen == ["plain"]
    with th.attach(ours, []) as rig:
        loss = ours(x).sum()
        rig.add(th.Hook("late", on=".", at="grad_output", do=lambda g: None))
        loss.backward()
        assert rig.ledger["late"].fired == 0
        ours(x).sum().backward()
        assert rig.ledger["late"].fired == 1
    handle.remove()


def test_d5_a_removed_module_hook_still_fires_in_pytorch_but_not_here() -> None:
    plain, ours = one_weight(), one_weight()
    x = torch.ones(1, 1, requires_grad=True)
    seen: list[str] = []
    handle = plain.register_full_backward_pre_hook(lambda m, g: seen.append("plain"))
    loss = plain(x).sum()
    handle.remove()
    loss.backward()
    assert seen == ["plain"]
    with th.attach(ours, [th.Hook("gone", on=".", at="grad_output", do=lambda g: seen.append("ours"))]) as rig:
        loss = ours(x).sum()
        rig.remove("gone")
        loss.backward()
    assert seen == ["plain"]


def test_d5_a_hook_that_removes_itself() -> None:
    def once(registered: list) -> Callable[[Tensor], Tensor]:
        def act(grad: Tensor) -> Tensor:
            registered[0].remove()
            return grad * 10

        return act

    plain, ours = leaf(1.0), leaf(1.0)
    y, z = plain * 2, ours * 2
    mine: list = []
    theirs: list = []
    mine.append(th.hook(z, once(mine)))
    theirs.append(y.register_hook(once(theirs)))
    for _ in range(2):
        y.sum().backward(retain_graph=True)
        z.sum().backward(retain_graph=True)
    assert plain.grad == ours.grad == 22.0


def plainly(model: nn.Sequential, at: str, act: Callable[..., object]) -> list[RemovableHandle]:
    if at == "grad":
        return [p.register_hook(act) for p in model.parameters()]
    if at == "grad_accumulated":
        return [p.register_post_accumulate_grad_hook(act) for p in model.parameters()]
    if at == "grad_output":
        return [m.register_full_backward_pre_hook(act) for m in model]
    return [m.register_full_backward_hook(act) for m in model]


@pytest.mark.parametrize("way", ["mute", "remove"])
@pytest.mark.parametrize(
    ("at", "plain_count"), [("grad", 1), ("grad_accumulated", 1), ("grad_output", 2), ("grad_input", 2)]
)
def test_d5_inside_a_hook_a_condition_switches_the_rest_off_at_once(at: str, plain_count: int, way: str) -> None:
    """Check that the earlier layers are switched off in the same backward, which reaches the last layer first.

    PyTorch's own module hooks still fire there, because the graph already holds them.
    """
    plain, ours = net(), net()
    fired: list[str] = []

    def enough_plainly(*args: object) -> None:
        fired.append("plain")
        for handle in handles:
            handle.remove()

    def enough(value: Tensor, ctx: th.Context) -> None:
        assert ctx.target.startswith("1")
        getattr(rig, way)("watch")
        fired.append("ours")

    handles = plainly(plain, at, enough_plainly)
    with th.attach(ours, [th.Hook("watch", on="**", at=at, do=enough)]) as rig:
        for model in (plain, ours):
            model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert fired == ["plain"] * plain_count + ["ours"]


def test_d5_inside_a_hook_another_is_added() -> None:
    plain, ours = leaf(1.0), leaf(1.0)
    y, z = plain * 2, ours * 2
    (y3, z3) = (y * 3, z * 3)
    y3.register_hook(lambda g: y.register_hook(lambda g: g * 10) and None)
    th.hook(z3, lambda g: th.hook(z, lambda g: g * 10) and None)
    y3.sum().backward()
    z3.sum().backward()
    assert plain.grad == ours.grad == 60.0


@pytest.mark.parametrize("way", ["mute", "remove"])
def test_d5_inside_a_forward_a_change_waits_for_the_next_one(way: str) -> None:
    """Check that the modifiers stay the same during one forward, so that a recomputation can repeat it."""
    model = net()
    seen: list[str] = []

    def act(value: Tensor, ctx: th.Context) -> Tensor:
        seen.append(ctx.target)
        if ctx.target == "0":
            getattr(rig, way)("double")
        return value * 2

    with th.attach(model, [th.Hook("double", on="**", at="output", do=act)]) as rig:
        model(torch.ones(1, 2))
        assert seen == ["0", "1"]
        model(torch.ones(1, 2))
        assert seen == ["0", "1"]


def test_d5_between_steps_by_condition() -> None:
    plain, ours = one_weight(), one_weight()
    x = torch.ones(1, 1)
    handle = None
    with th.attach(ours, []) as rig:
        for step in range(4):
            wanted = step % 2 == 1
            if wanted and handle is None:
                handle = plain.weight.register_hook(lambda g: g * 10)
                rig.add(th.Hook("ten", on="weight", at="grad", do=th.scale(10.0)))
            elif not wanted and handle is not None:
                handle.remove()
                handle = None
                rig.remove("ten")
            plain(x).sum().backward()
            ours(x).sum().backward()
            assert torch.equal(plain.weight.grad, ours.weight.grad)
    assert ours.weight.grad == 1 + 10 + 1 + 10


def test_d5_between_steps_by_when() -> None:
    model = one_weight()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    seen = []
    hook = th.Hook("ten", on="weight", at="grad", do=th.scale(10.0), when=th.When(start=1, every=2))
    with th.attach(model, [hook], optimizer=optimizer):
        for _ in range(4):
            model(torch.ones(1, 1)).sum().backward()
            seen.append(model.weight.grad.item())
            optimizer.step()
            optimizer.zero_grad()
    assert seen == [1.0, 10.0, 1.0, 10.0]


# -- D6: clipping while accumulating -----------------------------------------------------------------------------------


def accumulated(model: nn.Linear, optimizer: torch.optim.Optimizer) -> Tensor:
    for _ in range(3):
        (model(torch.ones(1, 1)) * 5).sum().backward()
    grad = model.weight.grad.clone()
    optimizer.step()
    return grad


def test_d6_a_clip_of_each_backward_does_not_limit_the_sum() -> None:
    plain, ours = one_weight(), one_weight()
    plain.weight.register_hook(lambda g: g.clamp(-1.0, 1.0))
    with th.attach(ours, [th.Hook("clip", on="weight", at="grad", do=th.clip_value(1.0))]):
        of_plain, of_ours = (accumulated(m, torch.optim.SGD(m.parameters(), lr=1.0)) for m in (plain, ours))
    assert of_plain == of_ours == 3.0
    assert plain.weight == ours.weight == -2.0


def test_d6_a_clip_of_the_final_gradient_does() -> None:
    plain, ours = one_weight(), one_weight()
    for_plain, for_ours = (torch.optim.SGD(m.parameters(), lr=1.0) for m in (plain, ours))
    for_plain.register_step_pre_hook(lambda *args: plain.weight.grad.clamp_(-1.0, 1.0) and None)
    hook = th.Hook("clip", on="weight", at="grad_final", do=th.clip_value(1.0))
    with th.attach(ours, [hook], optimizer=for_ours):
        assert accumulated(plain, for_plain) == accumulated(ours, for_ours) == 15.0
    assert plain.weight.grad == ours.weight.grad == 1.0
    assert plain.weight == ours.weight == 0.0
