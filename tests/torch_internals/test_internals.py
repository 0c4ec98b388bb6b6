"""What the rig relies on inside torch. A failure here means that torch has changed."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tenterhook import torch_internals as private
from tenterhook.torch_internals import compiler as dynamo


def leaf() -> nn.Parameter:
    return nn.Parameter(torch.ones(2))


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


def test_swap_tensors_changes_the_implementation_and_kills_hooks_until_they_are_reinstalled():
    p, fired = leaf(), []
    p.register_hook(lambda g: fired.append("grad"))
    p.register_post_accumulate_grad_hook(lambda p: fired.append("accumulated"))
    before = private.implementation(p)
    p.data = torch.zeros(2)
    assert private.implementation(p) == before
    torch.utils.swap_tensors(p, leaf())
    assert private.implementation(p) != before
    p.sum().backward()
    assert fired == []
    private.reinstall_tensor_hooks(p)
    private.reinstall_tensor_hooks(p)
    p.sum().backward()
    assert fired == ["grad", "accumulated"]


def test_empty_hook_dicts_go_back_to_none():
    p = leaf()
    handles = [p.register_hook(lambda g: None), p.register_post_accumulate_grad_hook(lambda p: None)]
    private.drop_empty_tensor_hooks(p)
    assert private.tensor_hooks(p, "_backward_hooks")
    for handle in handles:
        handle.remove()
    assert private.tensor_hooks(p, "_backward_hooks") == OrderedDict()
    private.drop_empty_tensor_hooks(p)
    assert [private.tensor_hooks(p, slot) for slot in private.HOOK_SLOTS] == [None, None]
    p.register_hook(lambda g: None)


def test_a_rearranged_dict_is_the_order_of_firing():
    p, fired = leaf(), []
    first = p.register_hook(lambda g: fired.append(1))
    second = p.register_hook(lambda g: fired.append(2))
    private.put_in_order(private.tensor_hooks(p, "_backward_hooks"), [second.id, first.id])
    p.sum().backward()
    assert fired == [2, 1]
    first.remove()
    p.sum().backward()
    assert fired == [2, 1, 2]


def test_the_slots_are_those_the_register_functions_fill():
    module, optimizer = nn.Linear(1, 1), torch.optim.SGD([leaf()], lr=0.1)
    for owner, slots in ((module, private.MODULE_SLOTS), (optimizer, private.OPTIMIZER_SLOTS)):
        assert {k for k in vars(owner) if k.endswith("_hooks")} >= set(slots)
        for slot, name in slots.items():
            assert not private.hooks_in(owner, slot)
            handle = getattr(owner, name)(lambda *args: None)
            assert list(private.hooks_in(owner, slot)) == [handle.id]
            handle.remove()


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


def test_nodes_are_the_same_objects_as_long_as_one_is_held():
    y = leaf() * 2
    held = y.grad_fn
    assert (y * 3).grad_fn.next_functions[0][0] is held
    assert torch.autograd.graph.get_gradient_edge(y).node is held


def test_torch_func_tensors_are_told():
    told = []
    torch.func.grad(lambda x: (told.append(private.is_functorch(x)), x.sum())[1])(torch.ones(2))
    assert told == [True] and not private.is_functorch(torch.ones(2))


def test_a_scaler_leaves_its_factor_on_a_fused_optimizer():
    p, seen = leaf(), []
    optimizer = torch.optim.Adam([p], fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    optimizer.register_step_pre_hook(
        lambda o, a, k: seen.append((private.pending_scale(o).item(), private.found_inf(o).item()))
    )
    scaler.scale(p.sum()).backward()
    scaler.step(optimizer)
    assert seen == [(8.0, 0.0)]
    assert private.pending_scale(optimizer) is None and private.found_inf(optimizer) is None


def test_a_compiled_module_is_told():
    module = nn.Linear(1, 1)
    assert not dynamo.is_compiled(module)
    assert dynamo.is_compiled(torch.compile(module, backend="eager"))
    module.compile(backend="eager")
    assert dynamo.is_compiled(module)


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
    assert not hasattr(private.read_version, "__code__"), "no Python frame"


def test_lists_of_tensors_are_measured_cleared_and_copied_in_one_call():
    tensors = [torch.tensor([3.0, 4.0]), torch.tensor([[1.0]]).double(), torch.zeros(0)]
    norms = private.foreach_norm(tensors)
    assert [n.tolist() for n in norms] == [5.0, 1.0, 0.0]
    assert [(n.dtype, n.shape) for n in norms] == [(t.dtype, ()) for t in tensors]
    assert private.foreach_norm([torch.tensor([torch.inf])])[0].isinf()
    into = [torch.ones(2), torch.ones(1, 1)]
    before = [(one.data_ptr(), one._version) for one in into]
    private.foreach_copy_(into, [torch.tensor([5.0, 6.0]).bfloat16(), torch.tensor([[7.0]]).double()])
    assert [one.tolist() for one in into] == [[5.0, 6.0], [[7.0]]]
    private.foreach_zero_(into)
    assert [one.tolist() for one in into] == [[0.0, 0.0], [[0.0]]]
    assert [(one.data_ptr(), one._version - 2) for one in into] == before
    for alias in (private.foreach_norm, private.foreach_zero_, private.foreach_copy_):
        assert not hasattr(alias, "__code__"), "no Python frame"


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


def test_clipping_goes_through_one_function_however_it_was_imported(monkeypatch):
    from torch.nn.utils import clip_grad_norm_

    where, name = private.CLIP_ENTRY
    called, clip = [], getattr(where, name)
    monkeypatch.setattr(
        where, name, lambda p, most, total, *a, **k: (called.append((len(p), most)), clip(p, most, total, *a, **k))
    )
    w = leaf()
    (w * 2).sum().backward()
    clip_grad_norm_([w], 1.0)
    assert called == [(1, 1.0)]


def test_functional_calls_go_through_one_function(monkeypatch):
    where, name = private.FUNCTIONAL_ENTRY
    called, call = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda module, *a, **k: (called.append(module), call(module, *a, **k))[1])
    model = nn.Linear(1, 1)
    torch.func.functional_call(model, dict(model.named_parameters()), torch.ones(1, 1))
    assert called == [model]


def test_a_node_that_ends_at_a_leaf_names_it():
    w = leaf()
    node = (w * 2).grad_fn.next_functions[0][0]
    assert private.accumulated_into(node) is w
    assert private.accumulated_into((w * 2).grad_fn) is None


def test_a_handle_knows_the_dict_of_its_hook():
    model, w = nn.Linear(1, 1), leaf()
    for handle, hooks in (
        (model.register_forward_hook(print), model._forward_hooks),
        (w.register_hook(print), w._backward_hooks),
        (torch.optim.SGD([w], lr=0.1).register_step_pre_hook(print), None),
    ):
        assert private.registered_in(handle) is hooks
    assert private.count_hooks(model, "register_forward_hook") == 1
    assert private.count_hooks(model, "register_full_backward_hook") == 0
    assert private.count_hooks(w, "register_hook") is None


def test_hooks_on_every_call_and_every_step_are_in_these_dicts():
    model, optimizer, seen = nn.Linear(1, 1), torch.optim.SGD([leaf()], lr=0.1), []
    before, after = private.EVERY_STEP
    undo = [
        private.insert_hook(private.EVERY_CALL, lambda module, args: seen.append("call")),
        private.insert_hook(before, lambda *args: seen.append("before")),
        private.insert_hook(after, lambda *args: seen.append("after")),
    ]
    try:
        model(torch.ones(1, 1))
        optimizer.step()
    finally:
        for take_out in undo:
            take_out()
    assert seen == ["call", "before", "after"]
    model(torch.ones(1, 1))
    optimizer.step()
    assert len(seen) == 3


def test_a_hook_put_into_a_dict_uses_up_no_number():
    model = nn.Linear(1, 1)
    first = model.register_forward_hook(lambda *args: None)
    fired: list[int] = []
    take_out = private.insert_hook(model._forward_hooks, lambda *args: fired.append(1))
    second = model.register_forward_hook(lambda *args: None)
    assert second.id == first.id + 1
    model(torch.ones(1, 1))
    take_out()
    take_out()
    model(torch.ones(1, 1))
    assert fired == [1] and list(model._forward_hooks) == [first.id, second.id]
    assert private.is_before_others(model._forward_hooks, first.id)
    assert not private.is_before_others(model._forward_hooks, second.id)
    second.remove()
    assert private.is_only(model._forward_hooks)


def test_a_hook_is_forgotten_with_what_stands_beside_it():
    model = nn.Linear(1, 1)
    bare = {name: len(value) for name, value in vars(model).items() if "hooks" in name and value is not None}
    handle = model.register_forward_hook(lambda *args, **kwargs: None, with_kwargs=True, always_call=True)
    private.forget_hook(model, "_forward_hooks", handle.id)
    handle = model.register_forward_pre_hook(lambda *args, **kwargs: None, with_kwargs=True)
    private.forget_hook(model, "_forward_pre_hooks", handle.id)
    found = {name: len(value) for name, value in vars(model).items() if "hooks" in name and value is not None}
    assert found == bare


def test_a_module_has_backward_hooks_of_one_kind():
    for register in ("register_backward_hook", "register_full_backward_hook"):
        model = nn.Linear(1, 1)
        getattr(model, register)(lambda *args: None)
        (slot,) = [s for s in private.registered_by(model) if private.hooks_in(model, s)]
        assert (slot, private.registered_by(model)[slot]) == ("_backward_hooks", register)


def test_the_output_of_a_call_with_full_backward_hooks_goes_through_one_function(monkeypatch):
    where, name = private.OUTPUT_ENTRY
    seen, setup = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda self, *a: (seen.append(self.module), setup(self, *a))[1])
    model = nn.Linear(1, 1)
    model(torch.ones(1, 1))
    model.register_full_backward_hook(lambda *args: None)
    model(torch.ones(1, 1))
    assert seen == [model]


def test_children_and_parameters_are_in_these_dicts():
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    assert private.child_modules(model) == {"0": model[0]}
    assert dict(private.own_parameters(model[0])) == {"weight": model[0].weight, "bias": None}
    model[0].weight = nn.Parameter(torch.zeros(1, 1))
    assert private.own_parameters(model[0])["weight"] is model[0].weight


def test_a_cleared_scale_is_not_divided_by():
    p = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([p], lr=1.0, fused=True)
    p.grad = torch.full((2,), 8.0)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(0.0)
    assert private.pending_scale(optimizer) == 8.0
    private.clear_scale(optimizer)
    assert private.pending_scale(optimizer) is None
    optimizer.step()
    assert p.tolist() == [-8.0, -8.0]


def test_the_children_of_wrappers_have_these_names():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import _common_utils

    compiled = torch.compile(nn.Linear(1, 1), backend="eager")
    wrapped = checkpoint_wrapper(nn.Linear(1, 1))
    names = (*private.child_modules(compiled), *private.child_modules(wrapped), _common_utils.FSDP_WRAPPED_MODULE)
    assert names == private.TRANSPARENT


@pytest.fixture
def one_process(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_store_of_the_process_group(one_process):
    private.default_store().set("key", "value")
    assert private.default_store().get("key") == b"value"


def test_a_reduction_in_another_dtype_is_told(one_process):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for policy, apart in (
        (MixedPrecisionPolicy(), False),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16), False),
        (MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), True),
    ):
        model = nn.Linear(2, 2)
        assert not private.reduced_apart(model)
        assert private.reduced_apart(fully_shard(model, mp_policy=policy)) is apart


def test_a_pipeline_that_infers_shapes_is_told(one_process):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    class Looks(nn.Module):
        def forward(self, x):
            told.append(private.infers_shapes())
            return x * 1.0

    told: list[bool] = []
    stage = PipelineStage(Looks(), 0, 1, torch.device("cpu"))
    ScheduleGPipe(stage, n_microbatches=1).step(torch.ones(2, 2))
    assert told == [True, False]


def test_the_groups_of_fsdp_know_their_shards_and_whether_they_reduce(tmp_path):
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        fully_shard(model[0])
        fully_shard(model)
        (outer, rest), (inner, first) = private.shard_groups(model)
        assert [id(p) for p in first] == [id(p) for p in model[0].parameters()]
        assert [id(p) for p in rest] == [id(p) for p in model[1].parameters()]
        model[0].set_requires_gradient_sync(False)
        assert (private.syncs(outer), private.syncs(inner)) == (True, False)
    finally:
        dist.destroy_process_group()


def test_schedules_are_looked_for_beside_dead_proxies():
    pytest.importorskip("torch.distributed.pipelining")

    class Gone:
        pass

    gone = Gone()
    proxy = weakref.proxy(gone)
    assert any(one is proxy for one in gc.get_objects())
    del gone
    assert not private.splits_backward(nn.Linear(1, 1))
