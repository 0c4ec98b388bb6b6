"""Check the private attributes of autograd. A test fails when torch changes an attribute that tenterhook uses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tenterhook import torch_internals as private
from tests.support.torch_internals.leaves import leaf


def test_the_graph_task_tells_a_backward_and_a_recomputation():
    inside = []
    x = leaf()
    x.register_hook(lambda g: inside.append(private.graph_task_id() != -1))

    def run(x):
        inside.append(private.graph_task_id() != -1)
        return x.exp()

    checkpoint(run, x, use_reentrant=False).sum().backward()
    assert inside == [False, True, True]
    assert private.graph_task_id() == -1


def test_callbacks_run_at_the_end_of_the_backward_in_order_and_nested_ones_last():
    calls = []
    x = leaf()

    def on_gradient(g):
        private.at_end_of_backward(lambda: private.at_end_of_backward(lambda: calls.append("nested")))
        private.at_end_of_backward(lambda: calls.append("end"))
        calls.append("hook")

    (x * 2).register_hook(on_gradient)
    y = x * 2
    y.register_hook(on_gradient)
    y.sum().backward()
    assert calls == ["hook", "end", "nested"]


def test_a_checkpoint_shows_in_the_hooks_on_saved_tensors():
    seen = []
    x = leaf()
    checkpoint(lambda x: (seen.append(private.saved_tensors_hooks(False)), x.exp())[1], x, use_reentrant=False)
    assert seen[0] is not None and private.saved_tensors_hooks(False) is None


def test_the_version_counter_outlives_the_memory():
    x = torch.ones(1000)
    counter = private.version_counter(x)
    before = counter._version
    x.add_(1)
    assert counter._version == before + 1
    assert counter.untyped_storage().nbytes() == 0


def test_a_view_knows_its_base():
    x = torch.ones(2, requires_grad=True) * 2
    assert private.view_base(x) is None
    assert private.view_base(x.view_as(x)) is x


def test_numbers_of_nodes_grow_as_the_forward_goes():
    x = leaf()
    start = private.sequence_number()
    y = x * 2
    z = y.exp()
    assert start <= private.node_number(y.grad_fn) < private.node_number(z.grad_fn) < private.sequence_number()
    accumulate = y.grad_fn.next_functions[0][0]
    assert private.node_number(accumulate) > private.sequence_number()
    assert private.node_key(z.grad_fn) == (private.node_number(z.grad_fn), "ExpBackward0")


def test_the_node_whose_backward_pass_runs_is_known():
    seen = []
    y = leaf() * 2
    y.register_hook(lambda grad: seen.append(private.current_node()))
    y.grad_fn.register_prehook(lambda grads: seen.append(private.current_node()))
    assert private.current_node() is None
    y.sum().backward()
    assert y.grad_fn in seen


def test_a_mode_sees_every_operation():
    seen = []

    class Note(private.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    x = leaf()
    with Note():
        x.exp().sum().backward()
    assert {"exp", "sum", "mul"} <= set(seen)


def test_nodes_are_the_same_objects_as_long_as_one_is_held():
    y = leaf() * 2
    held = y.grad_fn
    assert (y * 3).grad_fn.next_functions[0][0] is held
    assert torch.autograd.graph.get_gradient_edge(y).node is held


def test_torch_func_tensors_are_told():
    told = []
    torch.func.grad(lambda x: (told.append(private.is_functorch(x)), x.sum())[1])(torch.ones(2))
    assert told == [True] and not private.is_functorch(torch.ones(2))


def test_the_divisor_of_a_node() -> None:
    x = leaf()
    divided = [x.sum() / 4, x.sum() * 0.25, x.sum() / torch.tensor(4.0)]
    assert [private.divisor_of(one.grad_fn) for one in divided] == [4.0] * 3
    assert [private.divisor_of(one.grad_fn) for one in (x.sum(), x.sum() + 4, x * x)] == [None] * 3


def test_a_batch_inside_vmap_is_recognized() -> None:
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(private.is_batched(x)), x.sum())[1])(torch.ones(2, 3))
    torch.func.grad(lambda x: (seen.append(private.is_batched(x)), x.sum())[1])(torch.ones(2))
    both = torch.func.vmap(torch.func.grad(lambda x: (seen.append(private.is_batched(x)), x.sum())[1]))
    both(torch.ones(2, 3))
    assert seen == [True, False, True] and not private.is_batched(torch.ones(2))


def test_the_node_of_a_mean_is_recognized() -> None:
    x, target = torch.ones(2, 3, requires_grad=True), torch.zeros(2, dtype=torch.long)
    means = [x.mean(), x.mean(0), nn.functional.cross_entropy(x, target), nn.functional.mse_loss(x, torch.zeros(2, 3))]
    others = [
        x.sum(),
        nn.functional.cross_entropy(x, target, reduction="sum"),
        nn.functional.mse_loss(x, torch.zeros(2, 3), reduction="none"),
    ]
    assert [private.is_mean(one.grad_fn) for one in means] == [True] * 4
    assert [private.is_mean(one.grad_fn) for one in others] == [False] * 3


def test_versions_can_be_put_back_so_that_a_graph_runs_again():
    w = leaf()
    loss = (w * w).sum()
    before = private.versions([w])
    with torch.no_grad():
        w.add_(1).sub_(1)
    assert private.version(w) == before[0] + 2
    private.set_versions([w], before)
    assert private.version(w) == before[0]
    loss.backward()
    assert torch.equal(w.grad, 2 * w.detach())
    with torch.inference_mode():
        assert private.version(torch.ones(1)) is None


def test_the_version_is_read_as_the_attribute_is():
    class Subclass(torch.Tensor):
        pass

    x = torch.zeros(2)
    x.add_(1)
    for tensor in (x, x.view(1, 2), x.detach(), nn.Parameter(x), x.as_subclass(Subclass)):
        assert private.read_version(tensor) == tensor._version >= 1
    x.add_(1)
    assert private.read_version(x) == x._version == 2
    with torch.inference_mode():
        untracked = torch.zeros(1)
    with pytest.raises(RuntimeError, match="do not track version counter") as by_getter:
        private.read_version(untracked)
    with pytest.raises(RuntimeError) as by_attribute:
        untracked._version
    assert str(by_getter.value) == str(by_attribute.value)
    assert not hasattr(private.read_version, "__code__"), "a call must not enter a Python frame"


def test_users_of_memory_are_counted():
    kept = []
    x = torch.ones(3)
    alone = private.memory_users(x)
    kept.append(x.detach())
    assert private.memory_users(x) == alone + 1
    kept.append(x.clone())
    assert private.memory_users(x) == alone + 1
    assert private.memory_users(torch.eye(2).to_sparse()) == 0


def test_every_way_into_the_engine_goes_through_one_function(monkeypatch):
    where, name = private.ENGINE_ENTRY
    entered, run = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda *a, **k: (entered.append((len(a), k["accumulate_grad"])), run(*a, **k))[1])
    w = leaf()
    (w * 2).sum().backward()
    torch.autograd.backward((w * 2).sum())
    torch.autograd.grad((w * 2).sum(), w)
    assert [kept for _, kept in entered] == [True, True, False]
    assert all(count >= 5 for count, _ in entered)


def test_a_node_that_ends_at_a_leaf_names_it():
    w = leaf()
    node = (w * 2).grad_fn.next_functions[0][0]
    assert private.accumulated_into(node) is w
    assert private.accumulated_into((w * 2).grad_fn) is None


def test_a_tensor_that_a_checkpoint_computes_again_is_told():
    told = []

    def run(x):
        made = x.exp()
        told.append(private.checkpointed(made))
        return made

    made = checkpoint(run, leaf(), use_reentrant=False)
    checkpoint(run, leaf(), use_reentrant=True)
    run(leaf())
    (number, name), (_, reentrant), none = told
    assert (number, name) == (private.node_number(made.grad_fn), "ExpBackward0")
    assert reentrant == "CheckpointFunctionBackward" and none is None


def test_a_mark_recognizes_its_tensor_and_no_other():
    tensor, other = torch.zeros(3), torch.zeros(3)
    mark = private.TensorMark(tensor)
    assert mark.is_of(tensor) and mark.is_unchanged(tensor)
    assert not mark.is_of(other)
    tensor.add_(1)
    assert mark.is_of(tensor) and not mark.is_unchanged(tensor)


def test_a_mark_is_not_misled_by_an_id_that_is_used_again():
    for _ in range(100):
        tensor = torch.zeros(3)
        mark, was = private.TensorMark(tensor), id(tensor)
        del tensor
        others = [torch.zeros(3) for _ in range(10)]
        again = next((one for one in others if id(one) == was), None)
        if again is not None:
            assert not mark.is_of(again)
            return
    pytest.fail("Python used no id again")


def test_a_marked_tensor_can_be_swapped_and_converted():
    one, two = torch.zeros(3), torch.zeros(3, dtype=torch.float64)
    mark = private.TensorMark(one)
    torch.utils.swap_tensors(one, two)
    assert mark.is_of(one)
    sparse = torch.zeros(3).to_sparse()
    assert private.TensorMark(sparse).is_of(sparse)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_is_the_same_object_in_its_call_and_in_its_recomputation(use_reentrant):
    seen: list[object] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        seen.extend(private.checkpoints_around())
        return (x * 2).sin()

    checkpoint(run, leaf(), use_reentrant=use_reentrant).sum().backward()
    first, second = seen
    assert first is second


def test_the_factor_of_a_scaled_loss_is_found() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    scale = torch.tensor(1024.0)
    assert private.factor_of(x * 2.0 * scale) is not None
    assert private.factor_of(x.exp()) is None and private.factor_of(torch.tensor(1.0)) is None
    assert private.factor_of((torch.ones(2) * x).sum()) is None
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    factor = private.factor_of(scaler.scale(x.square()))
    assert factor is not None and factor.item() == 256.0
