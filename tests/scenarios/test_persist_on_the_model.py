"""Compares plain PyTorch with tenterhook on P7, P9, P10 and P11: hooks on a model that changes."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parametrize

import tenterhook as th

X = torch.arange(8.0).reshape(4, 2)
Change = Callable[[nn.Sequential], object]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def run(model: nn.Module) -> None:
    model(X.to(next(model.parameters()).dtype)).sum().backward()


def same_gradients(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p.grad, q.grad) for p, q in zip(one.parameters(), other.parameters()))


# -- P7: the model changes under the hook ------------------------------------------------------------------------------


class Twice(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 2


def assign(model: nn.Sequential) -> None:
    model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)


def convert(model: nn.Sequential) -> None:
    model.to(torch.float64)


def set_attribute(model: nn.Sequential) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def parametrized(model: nn.Sequential) -> None:
    parametrize.register_parametrization(model[0], "weight", Twice())


def swap(model: nn.Sequential) -> None:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def through_meta(model: nn.Sequential) -> None:
    state = model.state_dict()
    model.to("meta").to_empty(device="cpu").load_state_dict(state)


def weight(model: nn.Sequential) -> Tensor:
    if parametrize.is_parametrized(model[0]):
        return model[0].parametrizations.weight.original
    return model[0].weight


#: a change of the model, whether PyTorch's own hook survives it, and how often our hook is bound again
CHANGES = [(assign, False, 1), (convert, True, 0), (set_attribute, False, 1), (parametrized, True, 1), (swap, False, 1),
           (through_meta, False, 1)]  # fmt: skip


@pytest.mark.parametrize("at", ["grad", "grad_accumulated"])
@pytest.mark.parametrize(("change", "survives", "rebound"), CHANGES, ids=[c.__name__ for c, _, _ in CHANGES])
def test_p7_a_parameter_hook_is_bound_again(change: Change, survives: bool, rebound: int, at: str) -> None:
    plain, ours = net(), net()
    fired: list[Tensor] = []
    plain[0].weight.register_hook(lambda g: fired.append(g))
    with th.attach(ours, [th.Hook("double", on="0.weight", at=at, do=th.scale(2.0))]) as rig:
        for model in (plain, ours):
            change(model)
            run(model)
    site = rig.ledger["double"]["0.weight"]
    assert bool(fired) == survives
    assert torch.equal(weight(ours).grad, weight(plain).grad * 2)
    assert (site.fired, site.changed, site.rebound) == (1, 1, rebound)


@pytest.mark.parametrize("change", [convert, swap], ids=lambda v: v.__name__)
@pytest.mark.parametrize("at", ["grad", "grad_accumulated", "grad_final", "update"])
def test_p7_a_model_that_has_gradients_can_be_converted(change: Change, at: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with th.attach(model, [th.Hook("look", on="0.weight", at=at, do=th.stats())], optimizer=optimizer) as rig:
        for _ in range(3):  # swap_tensors refuses parameters and gradients that have weak references
            change(model)
            run(model)
            optimizer.step()
            change(model.float())
            optimizer.zero_grad()
        assert rig.ledger["look"]["0.weight"].fired == 3
    assert not rig.imbalances


@pytest.mark.parametrize("change", [convert, parametrized, swap], ids=lambda v: v.__name__)
@pytest.mark.parametrize("at", ["grad_final", "update"])
def test_p7_a_parameter_the_optimizer_still_holds_is_followed(change: Change, at: str) -> None:
    plain, ours = net(), net()
    for_plain, for_ours = (torch.optim.SGD(m.parameters(), lr=0.5) for m in (plain, ours))
    seen: list[Tensor] = []
    with th.attach(ours, [th.Hook("look", on="0.weight", at=at, do=lambda v: seen.append(v))], optimizer=for_ours):
        change(plain)
        change(ours)
        run(plain)
        run(ours)
        before = weight(plain).detach().clone()
        for_plain.step()
        for_ours.step()
    truth = weight(plain).grad if at == "grad_final" else weight(plain).detach() - before
    assert len(seen) == 1
    assert torch.equal(seen[0], truth)


@pytest.mark.parametrize("change", [assign, set_attribute, through_meta], ids=lambda v: v.__name__)
@pytest.mark.parametrize("at", ["grad_final", "update"])
def test_p7_a_parameter_the_optimizer_lost_is_dormant_until_it_is_back(change: Change, at: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with th.attach(model, [th.Hook("look", on="0.weight", at=at, do=lambda v: None)], optimizer=optimizer) as rig:
        change(model)
        run(model)
        optimizer.step()  # the optimizer trains tensors that are not in the model any more
        site = rig.ledger["look"]["0.weight"]
        assert (site.fired, site.dormant) == (0, "not in an optimizer")
        optimizer.param_groups[0]["params"] = list(model.parameters())
        run(model)
        optimizer.step()
        assert (site.fired, site.dormant) == (1, None)


@pytest.mark.parametrize(("at", "on"), [("output", "0"), ("grad_output", "0"), ("grad", "0.weight")])
def test_p7_a_module_that_is_replaced_is_followed_or_reported(at: str, on: str) -> None:
    plain, ours = net(), net()
    fired: list[str] = []
    plain[0].register_forward_hook(lambda m, args, out: fired.append("plain"))
    with th.attach(ours, [th.Hook("look", on=on, at=at, do=lambda v: None)]) as rig:
        still_held = [plain[0], ours[0]]
        for model in (plain, ours):
            model[0] = nn.Linear(2, 3)
            run(model)
        site = rig.ledger["look"][on]
        assert fired == []
        assert site.fired == 1 or site.dormant
    assert len(still_held) == 2


def test_p7_made_on_meta_and_filled_later() -> None:
    def on_meta() -> nn.Sequential:
        with torch.device("meta"):
            return net()

    plain, ours = on_meta(), on_meta()
    fired: list[Tensor] = []
    plain[0].weight.register_hook(lambda g: fired.append(g))
    with th.attach(ours, [th.Hook("double", on="0.weight", at="grad", do=th.scale(2.0))]) as rig:
        for model in (plain, ours):
            model.to_empty(device="cpu")
            for parameter in model.parameters():
                nn.init.ones_(parameter)
            run(model)
    assert fired == []
    assert torch.equal(ours[0].weight.grad, plain[0].weight.grad * 2)
    assert rig.ledger["double"]["0.weight"].rebound == 1


PLAN = th.Plan([
    th.Hook("in", on="2", at="input", do=th.scale(2.0)),
    th.Hook("out", on="0", at="output", do=th.scale(2.0)),
    th.Hook("grad_out", on="0", at="grad_output", do=th.scale(2.0)),
    th.Hook("grad_in", on="2", at="grad_input", do=th.scale(2.0)),
    th.Hook("grad", on="0.weight", at="grad", do=th.scale(2.0)),
    th.Hook("sum", on="2.weight", at="grad_accumulated", do=th.scale(2.0)),
    th.Hook("load", on=".", at="load_pre", do=lambda state: None),
    th.Hook("save", on=".", at="save_post", do=lambda state: None),
])  # fmt: skip


def test_p7_a_deepcopy_is_inert() -> None:
    plain, ours, bare = net(), net(), net()
    fired: list[str] = []
    plain[0].register_forward_hook(lambda m, args, out: fired.append("plain"))
    with th.attach(ours, PLAN) as rig:
        plain_copy, our_copy = copy.deepcopy(plain), copy.deepcopy(ours)
        for model in (plain_copy, our_copy, bare):
            run(model)
            model.load_state_dict(model.state_dict())
        assert fired == ["plain"]  # PyTorch copies its own module hooks
        assert same_gradients(our_copy, bare)
        assert {id: account.fired for id, account in rig.ledger.items()} == dict.fromkeys(rig.ledger, 0)
        run(ours)
        assert rig.ledger["out"].fired == rig.ledger["grad"].fired == 1


def test_p7_a_deepcopy_takes_the_same_plan() -> None:
    ours = net()
    with th.attach(ours, PLAN):
        other = copy.deepcopy(ours)
        assert th.detach(other) == 0
        with th.attach(other, PLAN):
            run(ours)
            run(other)
    assert same_gradients(ours, other)


def test_p7_the_inventory_of_a_copy_says_that_it_is_inert() -> None:
    ours = net()
    with th.attach(ours, PLAN):
        assert {found.ours for found in th.inventory(copy.deepcopy(ours))} == {("tenterhook, inert",)}
        assert ("tenterhook, inert",) not in {found.ours for found in th.inventory(ours)}


def test_p7_a_parameter_that_is_bound_again_keeps_its_state() -> None:
    """Check that a running mean stored by name survives. A closure on the old tensor would be lost with the tensor."""
    plan = [th.Hook("clip", on="0.weight", at="grad", do=th.clip_zscore(z=0.5, warmup=1))]
    straight, replaced = net(), net()
    with th.attach(straight, plan) as one, th.attach(replaced, plan) as other:
        for step in range(4):
            for model in (straight, replaced):
                model.zero_grad()
                model(X * (step + 1)).sum().backward()
            assert same_gradients(straight, replaced)
            assign(replaced)
        assert (one.ledger["clip"]["0.weight"].rebound, other.ledger["clip"]["0.weight"].rebound) == (0, 3)


def test_p7_a_deepcopy_takes_the_state_too() -> None:
    plan = [th.Hook("clip", on="0.weight", at="grad", do=th.clip_zscore(z=0.5, warmup=1))]
    ours = net()
    with th.attach(ours, plan) as rig:
        run(ours)
        twin = copy.deepcopy(ours)
        with th.restore(twin, rig.state_dict()) as again:
            for model in (ours, twin):
                model.zero_grad()
                model(X * 3).sum().backward()
            assert same_gradients(ours, twin)
            assert again.ledger["clip"].fired == rig.ledger["clip"].fired == 2


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("at", ["grad", "grad_accumulated", "grad_final", "update"])
def test_p7_sharded_after_attaching(one_rank: None, at: str) -> None:
    bare, plain, ours = net(), net(), net()
    run(bare)
    lost: list[Tensor] = []
    plain[0].weight.register_hook(lambda g: lost.append(g))
    seen: list[Tensor] = []
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.5)
    hook = th.Hook("look", on="0.weight", at=at, do=lambda v: seen.append(v))
    with th.attach(ours, [hook], optimizer=optimizer) as rig:
        for model in (plain, ours):
            fully_shard(model)
        optimizer.param_groups[0]["params"] = list(ours.parameters())
        run(plain)
        run(ours)
        optimizer.step()
    assert lost == []
    assert (rig.ledger["look"].fired, len(seen)) == (1, 1)
    whole = seen[0].full_tensor() if hasattr(seen[0], "full_tensor") else seen[0]
    truth = bare[0].weight.grad
    assert torch.allclose(whole, truth * -0.5 if at == "update" else truth)


# -- P9: the legacy backward hook --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_p9_the_legacy_hook_is_given_other_gradients_than_the_input_s() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(10, 5)
    seen: list[tuple[Tensor, ...]] = []
    layer.register_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input))
    x = torch.ones(1, 10, requires_grad=True)
    layer(x).sum().backward()
    assert [tuple(grad.shape) for grad in seen[0]] == [(5,), (1, 10), (10, 5)]
    assert not torch.equal(seen[0][0], x.grad[0, :5])


def test_p9_grad_input_is_the_gradient_of_the_input() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(10, 5)
    seen: list[Tensor] = []
    x = torch.ones(1, 10, requires_grad=True)
    with th.attach(layer, [th.Hook("look", on=".", at="grad_input", do=lambda grad: seen.append(grad))]):
        layer(x).sum().backward()
    assert len(seen) == 1
    assert torch.equal(seen[0], x.grad)


def test_p9_the_inventory_names_a_legacy_hook() -> None:
    model = net()
    model[0].register_backward_hook(lambda module, grad_input, grad_output: None)
    model[2].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    assert [(found.target, found.registered_by) for found in th.inventory(model)] == [
        ("0", "register_backward_hook"),
        ("2", "register_full_backward_hook"),
    ]


# -- P10: a function of the wrong form ---------------------------------------------------------------------------------


def test_p10_a_one_argument_function_fails_in_the_middle_of_backward() -> None:
    model = net()
    model[0].register_full_backward_hook(lambda grad: grad * 2)
    loss = model(X.clone().requires_grad_()).sum()
    with pytest.raises(TypeError, match="positional argument"):
        loss.backward()


def test_p10_a_one_argument_function_is_what_we_take() -> None:
    plain, ours = net(), net()
    plain[0].register_full_backward_hook(lambda m, grad_input, grad_output: (grad_input[0] * 2,))
    x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
    with th.attach(ours, [th.Hook("double", on="0", at="grad_input", do=lambda grad: grad * 2)]):
        plain(x).sum().backward()
        ours(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("fn", [lambda: None, lambda m, grad_input, grad_output: None], ids=["none", "three"])
def test_p10_any_other_form_is_refused_at_attach(fn: Callable[..., object]) -> None:
    model = net()
    with pytest.raises(th.ActionError, match=r"takes \d arguments") as told:
        th.attach(model, [th.Hook("wrong", on="0", at="grad_input", do=fn)])
    assert told.value.hook == "wrong"
    assert told.value.remedy is not None and told.value.remedy.startswith("write fn(value) or fn(value, ctx)")
    assert len(th.inventory(model)) == 0
    with pytest.raises(th.ActionError, match=r"takes \d arguments"):
        th.hook(torch.ones(1, requires_grad=True), fn)


# -- P11: the first Linear, all of them, subclasses --------------------------------------------------------------------


class Mine(nn.Linear):
    pass


def family() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), Mine(2, 2), nn.Linear(2, 1))


@pytest.mark.parametrize(
    ("on", "meant"),
    [
        ("type:Linear", lambda name, module: isinstance(module, nn.Linear)),
        ("type:torch.nn.Linear", lambda name, module: isinstance(module, nn.Linear)),
        ("type:Mine", lambda name, module: isinstance(module, Mine)),
        (("type:Linear", "!type:Mine"), lambda name, module: type(module) is nn.Linear),
        ("0", lambda name, module: name == "0"),
    ],
    ids=["type", "qualified", "subclass", "no subclass", "first"],
)
def test_p11_which_layers_a_type_names(on: str, meant: Callable[[str, nn.Module], bool]) -> None:
    model = family()
    truth = [name for name, module in model.named_modules() if meant(name, module)]
    with th.attach(model, [th.Hook("h", on=on, at="output", do=th.stats())]) as rig:
        assert list(rig.ledger["h"]) == truth


def test_p11_expect_refuses_more_than_the_first() -> None:
    model = family()
    with pytest.raises(th.ExpectError, match="found 3 targets, expected 1: 0, 2, 3"):
        th.attach(model, [th.Hook("h", on="type:Linear", at="output", do=th.stats(), expect=1)])
    assert len(th.inventory(model)) == 0


def test_p11_a_type_names_the_parameters_of_its_modules() -> None:
    model = family()
    truth = [f"{name}.{key}" for name, m in model.named_modules() if isinstance(m, Mine) for key in ("weight", "bias")]
    with th.attach(model, [th.Hook("h", on="type:Mine", at="grad", do=th.stats())]) as rig:
        assert list(rig.ledger["h"]) == truth
