"""Check hooks on models that change between two steps, and in programs that do not call the root.

Each test trains with `scale(0.0)` or a similar hook, so that a parameter moves only if its hook was lost.
"""

from __future__ import annotations

import threading
import types

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th

X = torch.arange(64.0).view(16, 4) / 64


class Net(nn.Module):
    """An encoder and a decoder. `loss` does not call the root."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enc, self.dec = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.dec(self.enc(x).tanh())

    def loss(self, x: Tensor) -> Tensor:
        return self.dec(self.enc(x).tanh()).square().mean()


def by_root(model: Net) -> Tensor:
    return model(X).square().mean()


def by_method(model: Net) -> Tensor:
    return model.loss(X)


@pytest.fixture(params=[by_root, by_method])
def loss(request):
    return request.param


def stop(model: nn.Module, optimizer, at: str = "grad_final", **hook) -> th.Rig:
    return th.attach(model, th.Hook("h", **({"on": "**", "at": at, "do": th.scale(0.0)} | hook)), optimizer=optimizer)


def moved(parameter: Tensor, train, steps: int = 3) -> float:
    before = parameter.detach().clone()
    for _ in range(steps):
        train()
    return (parameter - before).abs().max().item()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("at", ["grad", "grad_accumulated", "grad_final"])
def test_a_parameter_that_was_frozen_for_a_step_is_hooked_again(loss, at, steps):
    model = Net()
    optimizer = sgd(model)
    rig = stop(model, optimizer, at)

    def train() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    train()
    model.enc.requires_grad_(False)
    for _ in range(steps):
        train()
    model.enc.requires_grad_(True)
    assert moved(model.enc.weight, train) == 0.0
    site = rig.ledger["h"]["enc.weight"]
    assert (site.due, site.fired) == (4, 4)


@pytest.mark.parametrize("at", ["grad", "grad_accumulated", "grad_final"])
def test_a_parameter_that_was_frozen_at_attach_is_hooked_when_it_is_unfrozen(loss, at):
    model = Net()
    model.enc.requires_grad_(False)
    optimizer = sgd(model)
    rig = stop(model, optimizer, at)

    def train() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    train()
    assert rig.ledger["h"].dormant == {"enc.weight": "frozen", "enc.bias": "frozen"}
    model.enc.requires_grad_(True)
    assert moved(model.enc.weight, train) == 0.0
    site = rig.ledger["h"]["enc.weight"]
    assert (site.due, site.fired) == (3, 3)


def test_a_parameter_that_is_frozen_between_backward_and_step_is_still_clipped():
    model = Net()
    optimizer = sgd(model)
    stop(model, optimizer)
    model(X).sum().backward()
    model.enc.requires_grad_(False)
    assert moved(model.enc.weight, optimizer.step, 1) == 0.0  # the optimizer uses the gradient


def test_a_discriminator_that_is_frozen_for_the_generator():
    class Gan(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g, self.d = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.g(x)

    model = Gan()
    for_g, for_d = sgd(model.g), sgd(model.d)
    rig = stop(model, [for_d, for_g], on="d.**")

    def train() -> None:
        fake = model(X)
        model.d.requires_grad_(True)
        for_d.zero_grad()
        model.d(fake.detach()).sum().backward()
        for_d.step()
        model.d.requires_grad_(False)
        for_d.zero_grad()
        for_g.zero_grad()
        model.d(fake).sum().backward()
        for_g.step()

    assert moved(model.d.weight, train, 4) == 0.0
    assert rig.ledger["h"]["d.weight"].fired == 4
    assert not th.check(rig)  # all targets are frozen now, but they were hooked in each step


def test_a_part_that_was_added_is_hooked(loss):
    class Heads(Net):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList([nn.Linear(2, 2)])

        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return sum((head(y) for head in self.heads), start=y)

        def loss(self, x: Tensor) -> Tensor:
            return self.forward(x).square().mean()

    model = Heads()
    optimizer = sgd(model)
    rig = stop(model, optimizer)

    def train() -> None:
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()

    train()
    model.heads.append(nn.Linear(2, 2))
    optimizer.add_param_group({"params": list(model.heads[1].parameters())})
    assert moved(model.heads[1].weight, train) == 0.0
    assert rig.ledger["h"]["heads.1.weight"].fired == 3


def test_a_parameter_group_that_is_added_between_forward_and_step():
    model = Net()
    optimizer = sgd(model.enc)
    stop(model, optimizer)
    model(X).sum().backward()
    optimizer.step()
    model.zero_grad()
    y = model(X).sum()
    optimizer.add_param_group({"params": list(model.dec.parameters())})
    y.backward()
    assert moved(model.dec.weight, optimizer.step, 1) == 0.0


def test_a_child_that_is_built_twice_is_hooked():
    model = nn.Sequential(nn.Linear(4, 2))
    rig = stop(model, None, "output", on="0")
    for _ in range(30):  # the second child may have the address of the first one
        model[0] = nn.Linear(4, 2)
        model[0] = nn.Linear(4, 2)
        assert model(X).abs().max() == 0.0
    assert rig.ledger["h"]["0"].fired == 30


def test_a_replaced_module_is_hooked_from_the_second_step_on_if_the_root_is_not_called():
    model = Net()
    optimizer = sgd(model)
    stop(model, optimizer, "output", on="dec")
    model.loss(X).backward()
    optimizer.step()
    model.dec = nn.Linear(8, 2)
    assert model.loss(X) == 0.0


def test_weights_that_are_tied_later_have_one_hook():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    rig = th.attach(model, th.Hook("h", on="**", at="grad", do=th.scale(2.0)))
    model[1].weight = model[0].weight
    model(X).sum().backward()
    doubled = model[0].weight.grad.clone()
    rig.detach()
    model.zero_grad()
    model(X).sum().backward()
    assert torch.equal(doubled, model[0].weight.grad * 2)


def test_two_optimizers_hold_the_same_parameters():
    model = Net()
    adam, lbfgs = torch.optim.Adam(model.parameters(), lr=0.1), torch.optim.LBFGS(model.parameters())
    rig = stop(model, [adam, lbfgs])

    def train() -> None:
        adam.zero_grad()
        model(X).square().mean().backward()
        adam.step()

    assert moved(model.enc.weight, train) == 0.0
    assert rig.step_count == 3

    def closure() -> Tensor:
        lbfgs.zero_grad()
        value = model(X).square().mean()
        value.backward()
        return value

    assert moved(model.enc.weight, lambda: lbfgs.step(closure)) == 0.0
    assert rig.step_count == 6


def test_an_interrupted_forward_pass_does_not_keep_the_hooks():
    class Slow(nn.Module):
        stopped = False

        def forward(self, x: Tensor) -> Tensor:
            if self.stopped:
                raise KeyboardInterrupt
            return x

    slow = Slow()
    model = nn.Sequential(nn.Linear(4, 2), slow)
    bare = model(X)
    with pytest.raises(KeyboardInterrupt), stop(model, None, "output", on="0"):
        slow.stopped = True
        model(X)
    slow.stopped = False
    assert torch.equal(model(X), bare)
    assert th.detach(model) == 0


def test_a_forward_pass_inside_an_except_block_ends_a_step():
    model = Net()
    rig = stop(model, None, "grad", when=th.When(stop=2))
    zeroed = []
    for _ in range(4):
        model.zero_grad()
        try:
            raise KeyError
        except KeyError:
            model(X).sum().backward()
        zeroed.append(model.enc.weight.grad.abs().max().item() == 0.0)
    assert zeroed == [True, True, False, False]
    assert rig.step_count == 4


def test_steps_end_without_an_optimizer_and_without_the_root():
    model = Net()
    noise = th.Hook("n", on="enc", at="output", do=th.noise(1.0))
    stats = th.Hook("s", on="**", at="grad", do=th.stats(), when=th.When(stop=2))
    rig = th.attach(model, [noise, stats])
    losses = []
    for _ in range(5):
        value = model.loss(X)
        value.backward()
        losses.append(value.item())
    assert len(set(losses)) == 5
    assert rig.step_count == 5
    assert rig.ledger["s"].fired == 8
    assert set(rig.values("s")) == {"enc.weight", "enc.bias", "dec.weight", "dec.bias"}


def test_one_optimizer_for_each_parameter_that_steps_in_the_backward_pass():
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    optimizers = {name.replace(".", "_"): torch.optim.SGD([p], lr=0.1) for name, p in model.named_parameters()}
    seen: list[str] = []

    def see(grad: Tensor, ctx: th.Context) -> None:
        seen.append(ctx.target)

    hook = th.Hook("h", on="**", at="grad_final", do=see, when=th.When(every=2))
    rig = th.attach(model, hook, optimizer=optimizers)
    for parameter, own in zip(model.parameters(), optimizers.values(), strict=True):

        def now(_: Tensor, optimizer: torch.optim.Optimizer = own) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(now)
    fired = []
    for _ in range(4):
        seen.clear()
        model(X).sum().backward()
        fired.append(len(seen))
    assert fired == [6, 0, 6, 0]
    assert rig.step_count == 4


def test_a_root_that_calls_itself_makes_one_forward_pass():
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = nn.Linear(4, 4)

        def forward(self, x: Tensor, depth: int = 3) -> Tensor:
            return self.l(x) if depth == 0 else self(self.l(x).tanh(), depth - 1)

    model = Recursive()
    rig = th.attach(model, th.Hook("h", on="l", at="output", do=lambda y: None, when=th.When(every=2)))
    fired = []
    with torch.no_grad():
        for _ in range(4):
            before = rig.ledger["h"].fired
            model(X)
            fired.append(rig.ledger["h"].fired - before)
    assert fired == [4, 0, 4, 0]
    assert rig.step_count == 4


def test_a_learning_rate_of_zero_is_a_step():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    rig = th.attach(model, th.Hook("h", on="enc.weight", at="grad_final", do=lambda grad: None), optimizer=optimizer)
    for _ in range(3):
        model(X).sum().backward()
        optimizer.step(closure=None)
    assert (rig.step_count, rig.ledger["h"].fired) == (3, 3)


class Tapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return th.tap(self.l(x), "h", within=self)


def test_taps_follow_their_modules():
    model = nn.Sequential(Tapped(), Tapped(), Tapped())
    seen: list[str] = []
    th.attach(model, th.Hook("h", on="*:h", at="value", do=lambda x, ctx: seen.append(ctx.target)))
    model(X)
    model.insert(0, Tapped())
    seen.clear()
    model(X)
    assert seen == ["0:h", "1:h", "2:h", "3:h"]
    del model[0]
    del model[0]
    seen.clear()
    model(X)
    assert seen == ["0:h", "1:h"]


@pytest.mark.parametrize("on", ["y", ":y", "*", "**"])
def test_a_tap_of_the_root_may_be_written_without_a_colon(on):
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return th.tap(x * 2, "y")

    model = Root()
    stop(model, None, "value", on=on)
    assert model(X).abs().max() == 0.0


def test_an_optimizer_in_a_wrapper():
    accelerate = pytest.importorskip("accelerate")
    model = Net()
    prepared, optimizer = accelerate.Accelerator(cpu=True).prepare(model, sgd(model))
    rig = stop(prepared, optimizer)
    prepared(X).sum().backward()
    assert moved(model.enc.weight, optimizer.step, 1) == 0.0
    assert rig.step_count == 1


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is (deprecated|not supported)")  # since torch 2.15
def test_a_scripted_child_has_parameters_but_no_module_hooks():
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Linear(4, 2)))
    optimizer = sgd(model)
    rig = th.watch(model, optimizer)
    assert rig.ledger["outputs"].dormant == {"1": "a scripted module, which cannot have hooks"}
    stop(model, optimizer)
    model(X).sum().backward()
    assert moved(model[1].weight, optimizer.step, 1) == 0.0


def test_lazy_modules_are_refused():
    model = nn.Sequential(nn.LazyLinear(2))
    with pytest.raises(th.ResolveError) as error:
        th.watch(model)
    assert str(error.value) == (
        "the parameter '0.weight' has no shape yet, because a lazy module creates it in the first forward pass\n"
        "  remedy: call the model once, create the optimizer, then attach"
    )


def test_two_threads_that_run_the_model_at_once_are_refused():
    model = Net()
    th.attach(model, th.Hook("h", on="**", at="grad", do=th.scale(0.0)))
    inside, refused = threading.Event(), threading.Event()

    def wait(module, args) -> None:
        inside.set()
        assert refused.wait(10)

    handle = model.dec.register_forward_pre_hook(wait)
    thread = threading.Thread(target=model, args=(X,))
    thread.start()
    assert inside.wait(10)
    handle.remove()
    with pytest.raises(th.RefusedError) as caught:
        model(X)
    refused.set()
    thread.join()
    assert str(caught.value) == (
        "two threads run the model at the same time, so the rig cannot tell their passes apart\n"
        "  remedy: run the model in one thread at a time, or give each thread a copy of the model and its own rig"
    )
    model(X)  # one thread after the other is fine


class Returns(nn.Module):
    """Return the input in some structure."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor):
        return self.wrap(x)


def test_a_mapping_proxy_is_looked_into():
    model = Returns(lambda x: types.MappingProxyType({"a": x, "b": 1}))
    th.attach(model, th.Hook("zero", on=".", at="output", do=th.scale(0.0)))
    found = model(X)
    assert type(found) is types.MappingProxyType
    assert found["b"] == 1 and not found["a"].any()


class Cache:
    """Hold tensors two levels deep, as a cache of keys and values does."""

    def __init__(self, x: Tensor) -> None:
        self.layers = [types.SimpleNamespace(keys=x * 1)]


def test_tensors_in_an_object_of_an_unknown_type_are_reported():
    model = Returns(lambda x: (x, Cache(x)))
    rig = th.attach(model, [th.Hook("zero", on=".", at="output", do=th.scale(0.0)),
                            th.Hook("look", on=".", at="output", do=th.stats())])  # fmt: skip
    with pytest.warns(RuntimeWarning) as caught:
        seen, cache = model(X)
    assert not seen.any() and cache.layers[0].keys.any()
    assert str(caught[0].message) == (
        "tenterhook: hook 'zero' at output on '.': the tensors in an object of type Cache are not seen\n"
        "  remedy: pass the tensors in a tuple, list, dict or dataclass"
    )
    why = "the tensors in an object of type Cache are not seen"
    assert rig.ledger["zero"].skipped == rig.ledger["look"].skipped == {why: 1}


class Blocks(nn.Module):
    """Go through blocks, in a method that does not call the root.

    The rig watches the first two modules and the last one. They are not called here, so the rig does not notice a pass
    without the root in the first step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Identity(), nn.Identity()])
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.last = nn.Identity()

    def loss(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.square().mean()

    def forward(self, x: Tensor) -> Tensor:
        return self.loss(x)


def test_values_that_were_recorded_under_an_old_name_are_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, at="grad", do=th.stats())
    model(X).backward()
    optimizer.step()
    del model.blocks[0]  # PyTorch does not report deletions
    model.loss(X).backward()
    with pytest.warns(RuntimeWarning, match="now has another name"):
        optimizer.step()
    assert [one.code for one in rig.imbalances] == ["TH703"]


def test_a_block_that_takes_over_a_hooked_name_is_reported():
    model = Blocks()
    optimizer = sgd(model)
    stop(model, optimizer, "output", on="blocks.0")
    model(X).backward()
    optimizer.step()
    del model.blocks[0]
    model.loss(X).backward()
    with pytest.warns(RuntimeWarning, match="TH703"):
        optimizer.step()


def test_a_block_that_takes_over_a_hooked_name_before_a_call_of_the_root_is_not_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "output", on="blocks.0")
    model(X).backward()
    optimizer.step()
    del model.blocks[0]  # the block has a gradient, but no pass has run since
    model(X).backward()
    optimizer.step()
    assert not rig.imbalances
    assert rig.ledger["h"]["blocks.0"].fired == 2


@pytest.mark.parametrize("end", [lambda rig: rig.imbalances, th.Rig.detach, th.check])
def test_a_pass_without_the_hook_is_reported_before_its_step_ends(end):
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "grad")
    model.blocks.insert(2, nn.Linear(4, 4))  # PyTorch does not report insertions
    model.loss(X).backward()
    assert model.blocks[2].weight.grad.any()
    with pytest.warns(RuntimeWarning, match="TH703"):
        end(rig)
    assert [one.target for one in rig.imbalances] == ["blocks.2.weight"]  # one for each hook and cause


def test_a_value_of_a_failed_pass_under_an_old_name_is_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "output", on="blocks.0", do=th.stats())
    model.blocks.insert(0, nn.Linear(4, 4))
    model.blocks[2].forward = lambda x: 1 / 0
    with pytest.raises(ZeroDivisionError):
        model.loss(X)
    model.blocks[2].forward = lambda x: x
    with pytest.warns(RuntimeWarning, match="TH703"):
        model(X)
    causes = {one.cause for one in rig.imbalances}
    assert "the hook acted in this step on a part of the model that now has another name" in causes


def test_steps_of_an_optimizer_that_has_only_former_parameters_are_reported():
    model = Net()
    given = sgd(model)
    rig = stop(model, given)
    old = list(model.parameters())
    model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
    other = torch.optim.SGD(old, lr=0.1)
    model(X).sum().backward()
    with pytest.warns(RuntimeWarning, match="TH70"):
        other.step()
    assert rig.imbalances


def test_a_parameter_that_is_swapped_before_a_pass_without_the_root_is_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "grad")
    for _ in range(4):  # the auditor compares gradients with firings in the steps 1, 2, 4, 8 and so on
        model(X).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.utils.swap_tensors(model.blocks[0].weight, nn.Parameter(torch.ones(4, 4)))  # PyTorch loses all hooks
    model.loss(X).backward()
    with pytest.warns(RuntimeWarning, match="TH703"):
        optimizer.step()
    assert [one.target for one in rig.imbalances] == ["blocks.0.weight"]


def test_a_checkpoint_is_recomputed_right_after_an_interrupted_pass():
    class Checkpointed(Net):
        def loss(self, x: Tensor) -> Tensor:
            return checkpoint(self.enc, x, use_reentrant=True).square().mean()

        def forward(self, x: Tensor) -> Tensor:
            raise KeyboardInterrupt

    def by_step(y: Tensor, ctx: th.Context) -> Tensor:
        return y * (ctx.step + 1)

    model = Checkpointed()
    optimizer = torch.optim.SGD(model.enc.parameters(), lr=0.0)
    th.attach(model, th.Hook("h", on="enc", at="output", do=by_step), optimizer=optimizer)
    with pytest.raises(KeyboardInterrupt):
        model(X)
    for step in range(3):
        optimizer.zero_grad()
        model.loss(X.clone().requires_grad_()).backward()
        by_hand = Net().enc
        by_hand(X).mul(step + 1).square().mean().backward()
        assert torch.equal(model.enc.weight.grad, by_hand.weight.grad)
        optimizer.step()


def test_a_modifier_that_acted_on_a_part_that_it_no_longer_selects_is_reported():
    model = Blocks()
    model.head = nn.Linear(4, 4)
    model.head.weight, model.end = model.blocks[0].weight, nn.Identity()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "grad_accumulated", on="blocks.**")
    model(X).backward()
    optimizer.step()
    del model.blocks[0]  # the weight is still in the model, as head.weight
    optimizer.zero_grad()
    (model.loss(X) + model.head(X).square().mean()).backward()
    with pytest.warns(RuntimeWarning, match="now has another name"):
        optimizer.step()
    assert [one.target for one in rig.imbalances] == ["blocks.0.weight"]


def test_a_forward_pass_without_the_hook_is_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "input", on="blocks.*", do=th.stats())
    model.blocks.insert(2, nn.Linear(4, 4))
    model.loss(X)
    with pytest.warns(RuntimeWarning, match="may have run without the hook"):
        model(X)
    assert [one.target for one in rig.imbalances] == ["blocks.2"]


def test_an_evaluation_through_the_root_before_a_change_is_not_reported():
    model = Blocks()
    optimizer = sgd(model)
    rig = stop(model, optimizer, "input", on="blocks.*", do=th.stats())
    for _ in range(2):
        model(X).backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()(X)
        model.train().blocks.insert(2, nn.Linear(4, 4))
    assert not rig.imbalances


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_passes_of_reentrant_checkpoints_belong_to_one_backward_pass(use_reentrant):
    class Checkpointed(Net):
        def loss(self, x: Tensor) -> Tensor:
            y = checkpoint(self.enc, x, use_reentrant=use_reentrant).tanh()
            return self.dec(y).square().mean() + checkpoint(self.enc, x, use_reentrant=use_reentrant).square().mean()

        def forward(self, x: Tensor) -> Tensor:
            return self.loss(x)

    model = Checkpointed()
    optimizer = sgd(model)
    hooks = [th.Hook("stats", on="**", at="grad", do=th.stats()),
             th.Hook("half", on="enc.*", at="grad_accumulated", do=lambda g: g * 0.5)]  # fmt: skip
    rig = th.attach(model, hooks, optimizer=optimizer)
    for _ in range(2):  # the first pass was once taken for one whose gradients were cleared
        model(X.clone().requires_grad_()).backward()
    optimizer.step()
    assert rig.ledger["stats"].skipped == {}
    assert rig.ledger["stats"]["dec.weight"].fired == 2


@pytest.mark.parametrize("change", [lambda rig: rig.mute("h"), lambda rig: rig.remove("h")])
def test_a_pass_without_a_hook_is_reported_before_the_hook_is_muted_or_removed(change):
    model = Blocks()
    rig = stop(model, sgd(model), "input", on="blocks.*")
    model.blocks.insert(0, nn.Linear(4, 4))
    model.loss(X).backward()
    with pytest.warns(RuntimeWarning, match="TH703"):
        change(rig)


def test_a_pass_that_missed_a_block_is_reported_although_another_part_is_replaced_after_it():
    model = Blocks()
    stop(model, sgd(model), "grad", on="blocks.0.*")
    model.blocks._modules = {str(i): one for i, one in enumerate([nn.Linear(4, 4), *model.blocks])}  # not reported
    model.loss(X).backward()
    with pytest.warns(RuntimeWarning, match="TH703"):
        model.blocks[1] = nn.Linear(4, 4)  # had the hook in the pass
