"""Test what the exam notes about the circumstances in which a forward hook fires, and when it stays silent."""

from __future__ import annotations

import io
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tenterhook as th
from tenterhook.doctor.observe.circumstances import has_equal_halves
from tenterhook.doctor.reading.bytecode import by_sample, counts


def codes(run: Callable[[], object]) -> list[str]:
    with th.examine() as exam:
        run()
    return exam.findings.codes


@pytest.mark.parametrize(
    ("batch", "equal"),
    [
        (torch.tensor([[1.0, 2.0], [1.0, 2.0]]), True),
        (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), False),
        (torch.tensor([[1.0, 2.0]] * 3), False),  # an odd number of samples
        (torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]), False),
        (torch.zeros(4, 2), False),  # equal, but only because all numbers are
        (torch.tensor([[1, 2], [1, 2]]), False),  # tokens, as in two equal prompts
        (torch.tensor([1.0, 1.0]), False),
    ],
)
def test_a_batch_with_two_equal_halves(batch: Tensor, equal: bool) -> None:
    assert has_equal_halves((batch,)) is equal
    assert has_equal_halves(({"x": batch},)) is equal


def test_code_that_counts() -> None:
    total = 0

    def attribute(module: nn.Module, args: object) -> None:
        module.calls += 1  # type: ignore[operator]

    def outer(module: nn.Module, args: object) -> None:
        nonlocal total
        total += 1

    def local(module: nn.Module, args: object) -> int:
        number = 1
        number += 2
        return number

    assert [counts(one.__code__) for one in (attribute, outer, local)] == [True, True, False]


def test_code_that_treats_samples_apart() -> None:
    assert by_sample((lambda g, a: torch.einsum("ni,nj->nij", g, a)).__code__)
    assert by_sample((lambda g: g.norm(dim=1)).__code__)
    assert by_sample((lambda gs: [g.norm(dim=1) for g in gs]).__code__)
    assert not by_sample((lambda g: g.norm()).__code__)


def test_values_that_are_stored_in_training_only_are_not_from_before_the_training() -> None:
    def run() -> None:
        model, kept = nn.Linear(2, 1), []
        model.register_forward_hook(lambda m, a, out: kept.append(out.sum().item()) if m.training else None)
        for phase in (False, True, False):
            model.train(phase)
            model(torch.ones(1, 2)).sum().backward() if phase else model(torch.ones(1, 2))

    assert "TH424" not in codes(run)


def test_an_evaluation_before_and_after_the_training_is_a_note_only_for_a_hook_that_stores() -> None:
    def run(stores: bool, early: bool) -> None:
        model, kept = nn.Linear(2, 1), []
        model.register_forward_hook(lambda m, a, out: kept.append(out.sum().item()) if stores else print(end=""))
        for phase in (False, True) if early else (True, True):
            model.train(phase)
            model(torch.ones(1, 2)).sum().backward() if phase else model(torch.ones(1, 2))
        model.eval()(torch.ones(1, 2))

    assert "TH424" in codes(lambda: run(True, True))
    assert "TH424" not in codes(lambda: run(False, True))
    assert "TH424" not in codes(lambda: run(True, False))


@pytest.mark.parametrize(("passes", "found"), [(1, False), (2, True)])
def test_a_hook_that_counts_is_reported_if_a_step_has_several_passes(passes: int, found: bool) -> None:
    def run() -> None:
        model, count = nn.Linear(2, 1), {"calls": 0}

        def advance(module: nn.Module, args: object) -> None:
            count["calls"] += 1

        model.register_forward_pre_hook(advance)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            sum((model(torch.ones(1, 2)).sum() for _ in range(passes)), torch.zeros(())).backward()
            optimizer.step()

    assert ("TH425" in codes(run)) is found


class Pair(nn.Module):
    """Returns two tensors, of which the loss uses those with an index in `used`."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), self.b(x)


@pytest.mark.parametrize(("used", "found"), [((0,), False), ((1,), True), ((0, 1), False)])
def test_a_changed_value_that_the_loss_does_not_use(used: tuple[int, ...], found: bool) -> None:
    def run() -> None:
        pair = Pair()
        pair.register_forward_hook(lambda m, a, out: (out[0] * 2, out[1]))
        for _ in range(2):
            out = pair(torch.ones(1, 2))
            torch.stack([out[index] for index in used]).sum().backward()

    assert ("TH316" in codes(run)) is found


def test_a_changed_value_that_the_loss_does_not_use_is_counted() -> None:
    pair = Pair()
    with th.examine() as exam:
        pair.register_forward_hook(lambda m, a, out: (out[0] * 2, out[1]))
        for _ in range(2):
            pair(torch.ones(1, 2))[1].sum().backward()
    assert [one.evidence for one in exam.findings] == [
        "the hook replaced some values of the output; 2 times, a backward pass began at a loss that uses only the "
        "other values"
    ]


def test_a_pass_whose_output_no_loss_uses_says_nothing_about_its_parts() -> None:
    def run() -> None:
        pair = Pair()
        pair.register_forward_hook(lambda m, a, out: (out[0] * 2, out[1]))
        pair(torch.ones(1, 2))
        nn.Linear(2, 1)(torch.ones(1, 2)).sum().backward()

    assert "TH316" not in codes(run)


@pytest.mark.parametrize(("ready", "found"), [(True, False), (False, True)])
def test_the_mode_of_the_part_to_which_the_hooked_module_belongs(ready: bool, found: bool) -> None:
    """Test a teacher inside a model in training mode, which is examined by itself."""

    def run() -> None:
        kept: list[Tensor] = []
        student = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        teacher = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        both = nn.ModuleDict({"student": student, "teacher": teacher})
        both.train()
        teacher.train(not ready)
        teacher[0].register_forward_hook(lambda m, a, out: kept.append(out.clone()))
        with torch.no_grad():
            teacher(torch.ones(1, 2))

    assert ("TH541" in codes(run)) is found


@pytest.mark.parametrize(("name", "found"), [("body", True), ("body.0", False), ("head.0", True)])
def test_the_whole_model_is_looked_at_if_the_hooked_module_is_one_of_its_parts(name: str, found: bool) -> None:
    def run() -> None:
        kept: list[Tensor] = []
        body, head = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        model = nn.Sequential(OrderedDict(body=body, head=head))
        model.get_submodule(name).register_forward_hook(lambda m, a, out: kept.append(out.clone()))
        with torch.no_grad():
            model(torch.ones(1, 2))

    assert ("TH541" in codes(run)) is found


def test_the_objects_of_a_function_that_registers_a_hook_are_freed() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.kept: list[Tensor] = []

        def watch(self, module: nn.Module) -> bool:
            large = nn.Linear(2, 2)
            freed = weakref.ref(large)
            kept = self.kept
            module.register_forward_hook(lambda m, a, out: kept.append(out))
            del large
            return freed() is None

    with th.examine():
        assert Recorder().watch(nn.Linear(2, 2))


def test_a_new_list_in_the_variable_of_a_hooks_list_is_reported_only_if_the_old_one_is_out_of_reach() -> None:
    class Recorder:
        def __init__(self, model: nn.Module) -> None:
            self.kept: list[int] = []
            self.earlier: list[int] = []
            kept = self.kept
            model.register_forward_hook(lambda m, a, out: kept.append(1))

    def run(keeps: bool) -> None:
        model = nn.Linear(2, 1)
        recorder = Recorder(model)
        model(torch.ones(1, 2))
        if keeps:
            recorder.earlier = recorder.kept
        recorder.kept = []
        model(torch.ones(1, 2))

    assert "TH548" in codes(lambda: run(False))
    assert "TH548" not in codes(lambda: run(True))


def test_looking_for_variables_keeps_no_object_of_the_program_alive() -> None:
    import weakref

    class Recorder:
        def __init__(self, model: nn.Module) -> None:
            kept: list[int] = []
            self.kept = kept
            model.register_forward_hook(lambda m, a, out: kept.append(1))

    with th.examine():
        model = nn.Linear(2, 1)
        recorder = Recorder(model)
        gone = weakref.ref(recorder)
        del recorder
        assert gone() is None


@pytest.mark.parametrize(("key", "found"), [("tensor", True), ("module", False)])
def test_the_id_of_a_tensor_as_a_key(key: str, found: bool) -> None:
    def run() -> None:
        model, cache = nn.Linear(2, 1), {}
        model.register_forward_hook(
            lambda m, a, out: cache.__setitem__(id(a[0]) if key == "tensor" else id(m), out.sum().item())
        )
        model(torch.ones(1, 2))

    assert ("TH546" in codes(run)) is found


def test_keys_that_differ_by_more_than_a_prefix_are_not_reported() -> None:
    """Test a new head instead of the old one, for which `strict=False` is right."""

    def run() -> None:
        old = nn.ModuleDict({"body": nn.Linear(2, 2), "fc": nn.Linear(2, 3)})
        new = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 5)})
        new.register_load_state_dict_post_hook(lambda module, keys: None)
        new.load_state_dict(old.state_dict(), strict=False)

    assert "TH237" not in codes(run)


class Keeping(nn.Module):
    """Keeps the handle of its own hook."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = self.register_forward_pre_hook(double)

    def forward(self, x: Tensor) -> Tensor:
        return x


def double(module: nn.Module, args: tuple[Tensor, ...]) -> Tensor:
    return args[0] * 2


@pytest.mark.parametrize(("whole", "found"), [(True, False), (False, True)])
def test_a_handle_that_is_loaded_with_its_module_is_restored(whole: bool, found: bool) -> None:
    def run() -> None:
        model = Keeping()
        saved = io.BytesIO()
        torch.save(model if whole else model.handle, saved)
        saved.seek(0)
        again = torch.load(saved, weights_only=False)
        if whole:
            assert again(torch.ones(1)) == 2
            again.handle.remove()
            assert again(torch.ones(1)) == 1

    assert ("TH107" in codes(run)) is found


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x) + 1
        return out


@pytest.mark.parametrize("both", [True, False])
def test_a_module_inside_a_wrapper_is_not_reported_if_the_wrapper_is_hooked_too(both: bool) -> None:
    def run() -> None:
        kept: list[Tensor] = []

        def keep(module: nn.Module, args: object, output: Tensor) -> None:
            kept.append(output.detach().clone())

        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        model[0].register_forward_hook(keep)
        model[0] = Wrapper(model[0])
        if both:
            model[0].register_forward_hook(keep)
        model(torch.ones(1, 2))

    assert ("TH229" in codes(run)) is not both


def test_a_module_that_moved_is_named_by_its_new_place() -> None:
    def run() -> None:
        def clamp(module: nn.Module, args: object, output: Tensor) -> Tensor:
            return output.clamp(-1, 1)

        model = nn.Sequential(Wrapper(nn.Linear(2, 2)), nn.Linear(2, 1))
        model[0].register_forward_hook(clamp)
        model(torch.ones(1, 2))
        model[0] = model[0].inner
        model[0].register_forward_hook(clamp)  # the program knows that the first hook is gone
        model(torch.ones(1, 2))

    assert "TH227" not in codes(run)


@pytest.mark.parametrize("sign", [1, -1])
def test_another_gradient_is_neither_a_mask_nor_a_factor(sign: int) -> None:
    def run() -> None:
        model = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()
        other = {"weight": torch.tensor([[0.0, 2.0, -3.0]]), "bias": torch.tensor([sign * 0.71234])}
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda grad, name=name: other[name])
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()

    assert not {"TH304", "TH305"} & set(codes(run))


@pytest.mark.parametrize(
    ("how", "found"), [("computes it", False), ("assigns another tensor", False), ("writes to it", True)]
)
def test_a_program_may_assign_what_its_own_pre_hook_computes(how: str, found: bool) -> None:
    def run() -> None:
        layer = nn.Linear(2, 1)
        raw = layer.weight.detach().clone()
        del layer.weight

        def refresh(module: nn.Module, args: object) -> None:
            module.weight = raw * 1.0

        refresh(layer, None)
        layer.register_forward_pre_hook(refresh)
        for _ in range(2):
            layer(torch.ones(1, 2))
            if how == "computes it":
                refresh(layer, None)
            elif how == "writes to it":
                layer.weight.zero_()
            else:
                layer.weight = raw.clone().mul_(1.0)

    assert ("TH550" in codes(run)) is found


def test_reading_the_graph_of_a_loss_calls_no_hook_on_saved_tensors() -> None:
    unpacked: list[int] = []

    def unpack(tensor: Tensor) -> Tensor:
        unpacked.append(1)
        return tensor

    def run() -> None:
        model, kept = nn.Linear(2, 1), []
        model.register_forward_hook(lambda m, a, out: kept.append(out.detach().clone()))
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
            loss = model(torch.ones(1, 2)).sum() / torch.tensor(4.0, requires_grad=True)
        unpacked.clear()
        loss.backward()

    run()
    bare = len(unpacked)
    codes(run)
    assert len(unpacked) == bare


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
def test_a_model_without_values_is_examined_without_an_error() -> None:
    def run() -> None:
        model = torch.nn.utils.weight_norm(nn.Linear(2, 1, device="meta"))
        kept: list[Tensor] = []
        model.register_forward_hook(lambda m, a, out: kept.append(out.detach().clone()))
        loss = model(torch.ones(1, 2, device="meta")).sum() * torch.tensor(0.25, device="meta")
        loss.backward()

    assert "TH608" not in codes(run)


@pytest.mark.parametrize(("bound", "found"), [("late", True), ("default", False), ("partial", False), ("made", False)])
def test_hooks_of_a_loop_that_read_its_last_value(bound: str, found: bool) -> None:
    def run() -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        factors = {name: 2.0 + i for i, (name, _) in enumerate(model.named_parameters())}

        def make(name: str) -> Callable[[Tensor], Tensor]:
            return lambda grad: grad * factors[name]

        def scale(name: str, grad: Tensor) -> Tensor:
            return grad * factors[name]

        for name, parameter in model.named_parameters():
            hook = {
                "late": lambda grad: grad * factors[name],
                "default": lambda grad, name=name: grad * factors[name],
                "partial": partial(scale, name),
                "made": make(name),
            }[bound]
            parameter.register_hook(hook)
        model(torch.ones(1, 2)).sum().backward()

    assert ("TH551" in codes(run)) is found


def test_a_variable_that_tells_the_step_is_not_one_of_a_loop() -> None:
    def run() -> None:
        weight, seen = torch.ones(1, requires_grad=True), []
        step = 0
        for step in range(4):
            if step % 2 == 0:
                handle = weight.register_hook(lambda grad: seen.append(step))
            (2 * weight).sum().backward()
            if step % 2:
                handle.remove()

    assert "TH551" not in codes(run)


@pytest.mark.parametrize("consumed", [True, False])
def test_a_value_that_a_hook_stores_on_its_module_is_seen(consumed: bool) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + (x if consumed else self.layer(2 * x))

    def run() -> None:
        def keep(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            module.seen = args[0].detach()

        model = Twice()
        model.layer.register_forward_hook(keep)
        model(torch.ones(1, 2))

    assert ("TH521" in codes(run)) is not consumed


@pytest.mark.parametrize("evaluates", [True, False])
def test_a_list_that_also_grows_without_gradients(evaluates: bool) -> None:
    def run() -> None:
        model, kept = nn.Linear(2, 1), []
        model.register_forward_hook(lambda module, args, output: kept.append(args[0].sum().item()))
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        if evaluates:
            with torch.no_grad():
                model(torch.ones(1, 2))

    assert ("TH523" in codes(run)) is evaluates


@pytest.mark.parametrize("again", [True, False])
def test_tensor_hooks_of_a_model_that_was_saved_and_loaded(again: bool) -> None:
    def train(model: nn.Module) -> None:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()

    def run() -> None:
        def first() -> bytes:
            model = nn.Linear(2, 1)
            model.weight.register_hook(halve)
            train(model)
            saved = io.BytesIO()
            torch.save(model, saved)
            return saved.getvalue()

        model = torch.load(io.BytesIO(first()), weights_only=False)
        if again:
            model.weight.register_hook(halve)
        train(model)

    assert ("TH206" in codes(run)) is not again


def test_another_model_that_is_only_evaluated_after_the_training() -> None:
    def run() -> None:
        model, other = nn.Linear(2, 1), nn.Linear(2, 1)
        model.weight.register_hook(halve)
        model(torch.ones(1, 2)).sum().backward()
        for _ in range(3):
            other(torch.ones(1, 2))

    assert "TH206" not in codes(run)


def halve(grad: Tensor) -> Tensor:
    return grad * 0.5


@pytest.mark.parametrize("uses", ["optimizer", "none"])
def test_a_hook_of_several_optimizers_may_be_about_each_of_them(uses: str) -> None:
    def run() -> None:
        model, steps = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), []
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model]
        for optimizer in optimizers:
            if uses == "optimizer":
                optimizer.register_step_post_hook(lambda optimizer, args, kwargs: steps.append(id(optimizer)))
            else:
                optimizer.register_step_post_hook(lambda optimizer, args, kwargs: steps.append(1))
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()

    assert ("TH415" in codes(run)) is (uses == "none")


@pytest.mark.parametrize("reached", [True, False])
def test_a_detached_value_of_a_module_that_the_loss_reaches_in_another_way(reached: bool) -> None:
    def run() -> None:
        student, adapter, kept = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 1), {}

        def keep(module: nn.Module, args: object, output: Tensor) -> None:
            kept["features"] = output.detach()

        student[0].register_forward_hook(keep)
        for _ in range(2):
            out = student(torch.ones(1, 2)).sum()
            hint = adapter(kept["features"]).sum()
            (hint + out if reached else hint).backward()

    assert ("TH549" in codes(run)) is not reached


total = torch.zeros(2)


def adds_it(grad: Tensor) -> None:
    total.add_(grad.detach())


def adds_its_gradient(grad: Tensor) -> None:
    assert grad.grad is not None
    total.add_(grad.grad)


def adds_the_parameter(p: Tensor) -> None:
    total.add_(p.detach())


def clears_the_gradient(p: Tensor) -> None:
    total.add_(p.detach().norm())
    p.grad = None


@pytest.mark.parametrize(
    ("hook", "found"),
    [(adds_it, True), (adds_its_gradient, False), (adds_the_parameter, False), (clears_the_gradient, False)],
)
def test_a_parameter_that_is_called_a_gradient(hook: Callable[[Tensor], None], found: bool) -> None:
    def run() -> None:
        weight = torch.ones(2, requires_grad=True)
        weight.register_post_accumulate_grad_hook(hook)
        weight.sum().backward()

    assert ("TH525" in codes(run)) is found


@pytest.mark.parametrize("again", [True, False])
def test_a_handle_that_is_removed_twice_without_a_pass_in_between(again: bool) -> None:
    def run() -> None:
        model, kept = nn.Sequential(nn.Linear(2, 2)), {}
        handle = model[0].register_forward_hook(lambda module, args, output: kept.update(a=output.detach()))
        model(torch.ones(1, 2))
        handle.remove()
        if again:
            model(torch.ones(1, 2))
        handle.remove()

    assert ("TH430" in codes(run)) is again


def test_an_error_that_ends_a_recomputation_is_not_one_of_the_hook() -> None:
    def run() -> None:
        model, adapter = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 2)
        model[0].register_forward_hook(lambda module, args, output: output + adapter(args[0]))
        x = torch.ones(1, 2, requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()

    assert "TH507" not in codes(run)


def test_a_hook_that_adds_up_in_a_method_of_its_object() -> None:
    class Sums:
        def __init__(self) -> None:
            self.of: dict[nn.Module, Tensor] = {}

        def see(self, module: nn.Module, args: object, output: Tensor) -> None:
            self.add(module, output.detach())

        def add(self, module: nn.Module, value: Tensor) -> None:
            if module in self.of:
                self.of[module] = self.of[module] + value
            else:
                self.of[module] = value

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x))

    def run() -> None:
        model = Twice()
        model.layer.register_forward_hook(Sums().see)
        model(torch.ones(1, 2))

    assert not {"TH520", "TH521"} & set(codes(run))


def test_a_backward_hook_on_frozen_layers_explains_the_error_of_the_program() -> None:
    class Map:
        def __init__(self, layer: nn.Module) -> None:
            self.gradient: Tensor | None = None
            layer.register_full_backward_hook(self.keep)

        def keep(self, module: nn.Module, grad_input: object, grad_output: tuple[Tensor, ...]) -> None:
            self.gradient = grad_output[0]

    body, head = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)
    with pytest.raises(AttributeError), th.examine() as exam:
        kept = Map(body)
        head(body(torch.ones(1, 2))).sum().backward()
        kept.gradient.mean()  # type: ignore[union-attr]
    assert exam.findings.codes[:1] == ["TH103"]
