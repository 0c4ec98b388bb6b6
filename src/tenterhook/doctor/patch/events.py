"""Record the backward passes, steps, gradient clips and loss scales in an exam, and how they affect each hook."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tenterhook import torch_internals as private
from tenterhook.doctor.observe.distribution import Distribution
from tenterhook.doctor.observe.firing_sample import is_plain
from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, STEP, TENSOR
from tenterhook.doctor.observe.hook_owner import is_dtensor
from tenterhook.doctor.observe.hook_record import SAMPLES, FiringLog, HookRecord
from tenterhook.doctor.observe.model_index import ModelIndex, caller, original_module
from tenterhook.doctor.observe.observer import Observer
from tenterhook.doctor.observe.timeline import RunningBackward, Timeline
from tenterhook.doctor.observe.usage import (
    Graph,
    MissedBackward,
    OptimizerUse,
    has_constant_term,
    is_mean,
    parts_of,
    walk,
)
from tenterhook.doctor.patch.calls.code_calls import code_calls
from tenterhook.doctor.patch.compiler import Compiler
from tenterhook.doctor.patch.exam_errors import ExamErrors
from tenterhook.doctor.patch.module_calls import ModuleCalls
from tenterhook.torch_internals import compiler as dynamo


class ProgramEvents:
    """A recorder that observes what the program does while an exam is open.

    Methods such as `clipping` observe the calls of a PyTorch function.
    """

    def __init__(self, places: ModelIndex) -> None:
        self.places = places
        self.timeline = Timeline()
        self.spread = Distribution()
        self.hooks: list[HookRecord] = []
        self.firings = FiringLog()
        self.compiler = Compiler(self.hooks, self.timeline)
        #: the number of backward passes with `retain_graph=True`, and the place in the code that started the last one
        self.retained = 0
        self.retained_at: str | None = None
        #: optimizer steps that ran inside a backward pass
        self.steps_inside = 0
        self.skipped_steps = 0
        self._stepped = False
        #: places in the code that clipped gradients although no parameter had a gradient
        self.empty_clips: list[str] = []
        #: places in the code that used a reentrant checkpoint without an input that requires a gradient
        self.blind_checkpoints: list[str] = []
        #: ids of parameters that `functional_call` replaced
        self.functional: set[int] = set()
        #: the errors of the exam itself
        self.errors = ExamErrors()
        self.calls_of_code = code_calls(self.errors)
        self.module_calls = ModuleCalls(self.timeline, self.calls_of_code)
        #: by id of a tensor: the number of gradients that `autograd.grad` returned and did not accumulate
        self.only_returned: Counter[int] = Counter()
        #: hooks that were removed although a checkpoint may still recompute their forward pass
        self.missed: list[HookRecord] = []
        #: the first hooks of each line on tensors that are not leaves, by the key of the node, until a backward pass
        self.branching: dict[Any, HookRecord] = {}
        #: hooked tensors that are not leaves, each with an alias that shows changes in place, until a backward pass
        self.hooked: list[tuple[HookRecord, Tensor]] = []
        #: the classes of the models that `torch.fx` has traced
        self.fx_roots: set[type] = set()
        #: the threads that have run a backward pass
        self.backward_threads: set[int] = set()
        #: by id of an optimizer: the place in the code that created a scheduler for it
        self.schedulers: dict[int, str] = {}
        #: the number of processes that the program has started with `multiprocessing`
        self.children = 0
        #: True if the program has called `torch.compile` since the exam began
        self.compiles = False
        #: calls of load_state_dict(strict=False), with the place in the code, the missing and the unexpected keys
        self.ignored_keys: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self._members: weakref.WeakKeyDictionary[Optimizer, dict[int, dict[str, Any]]] = weakref.WeakKeyDictionary()
        self._before: dict[int, Tensor] = {}
        #: the optimizers that have stepped, by id
        self.optimizers: dict[int, OptimizerUse] = {}

    # -- backward ----------------------------------------------------------------------------------------------------

    def backward(self, outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Observer:
        """Observe a backward pass."""
        # Skip a backward pass inside another one (a reentrant checkpoint), and a pass that is only being traced.
        if self.timeline.running is not None or dynamo.is_tracing():
            yield
            return
        self.places.note_thread()
        self.spread.look()
        if self._stepped:
            self.firings.since_step.clear()
            self._stepped = False
        _, retain, create_graph, inputs = (*args, None, False, False, ())[:4]
        kept = kwargs.get("accumulate_grad", False)
        entry = "autograd.grad" if not kept else "backward(inputs=...)" if inputs else "backward"
        if entry == "autograd.grad":
            for one in inputs:
                self.only_returned[id(one)] += 1
        mean, parts = is_mean(outputs), 1 if self.timeline.saved_by_hooks else parts_of(outputs)
        self.timeline.running = RunningBackward(entry, bool(create_graph), caller().place, mean, parts)
        self.backward_threads.add(threading.get_ident())
        self.timeline.backwards += 1
        if retain and not create_graph:
            self.retained += 1
            self.retained_at = caller().place
        if self.firings.waiting or self.missed:
            self._note_missed(outputs, entry)
        else:
            self.module_calls.stop_counting()
        self._count_consumers(outputs)
        if self.timeline.parts:
            self.timeline.compare_parts(walk(outputs).nodes)
        if self.timeline.detaching and not self.timeline.saved_by_hooks:
            self.timeline.note_terms(has_constant_term(outputs), walk(outputs).leaves)
        self.timeline.detaching.clear()
        for hook, alias in self.hooked:
            hook.rebased |= private.version(alias) != hook.owner.version
        self.hooked.clear()
        waited = self.compiler.waiting_in(lambda: walk(outputs).nodes)
        try:
            yield
        finally:
            self.timeline.running = None
            self.firings.look_at_held()
            self.spread.look_at_gradients()
            self.compiler.gone_through(waited)

    def _count_consumers(self, outputs: Sequence[Any]) -> None:
        """Count the operations that use each hooked tensor."""
        if not self.branching:
            return
        for node in walk(outputs).nodes:
            for child, output in node.next_functions:
                hook = self.branching.get(private.node_key(child)) if child is not None else None
                if hook is not None and hook.owner.output == output:
                    hook.consumers += 1
        self.branching.clear()

    def _note_missed(self, outputs: Sequence[Any], entry: str) -> None:
        graph = walk(outputs)
        for number, hook in list(self.firings.waiting.items()):
            if hook.removed is None:
                hook.missed_backwards.append(self._missed_backward(hook, graph, entry))
            if hook.removed is not None or len(hook.missed_backwards) == SAMPLES:
                self.firings.waiting.pop(number, None)
        made = {(private.node_number(n), n.name()) for n in graph.nodes} if self.missed else set()
        for hook in self.missed:
            hook.recomputed_without = len(made & hook.checkpointed.keys())
        self.missed.clear()

    def _missed_backward(self, hook: HookRecord, graph: Graph, entry: str) -> MissedBackward:
        owner, now = hook.owner, hook.owner.now()
        if hook.kind in (*FORWARD, *BACKWARD):
            parameters = list(now.parameters()) if isinstance(now, nn.Module) else []
            uses = [graph.leaves[id(p)] for p in parameters if id(p) in graph.leaves]
            root = owner.place.root() if owner.place is not None else None
            everything = root.parameters() if root is not None else ()
            around = uses or [graph.leaves[id(p)] for p in everything if id(p) in graph.leaves]
            late = max(around, default=graph.latest) < hook.born.sequence
            other = self._other(hook, graph)
            return MissedBackward(entry, bool(uses), now is not None, used=bool(uses), late=late, other=other)
        if owner.is_parameter:
            replaced = owner.replaced
            inside = owner.id in graph.leaves and not replaced
            frozen = isinstance(now, Tensor) and not now.requires_grad
            group = owner.group() if owner.group is not None else None
            sharded = replaced and not owner.is_dtensor and (is_dtensor(now) or self.spread.shards(owner))
            return MissedBackward(
                entry,
                inside,
                True,
                frozen,
                replaced,
                sharded,
                group is not None and not private.syncs(group),
                other=None if inside else self._other(hook, graph),
            )
        if now is None:
            return MissedBackward(entry, False, alive=False)
        inside = id(now) in graph.leaves if owner.leaf else now.grad_fn in graph.nodes
        return MissedBackward(entry, inside or not graph.whole, True, owner.leaf and not now.requires_grad)

    def _other(self, hook: HookRecord, graph: Graph) -> str | None:
        """Return the name of the hooked model's class if another model of that class ran instead, otherwise None."""
        mine = hook.owner.place
        if mine is None or (hook.calls is not None and hook.calls.count):
            return None
        root = mine.root()
        if root is not None and any(id(p) in graph.leaves for p in root.parameters()):
            return None
        self.places.look()
        for leaf in graph.leaves:
            place = self.places.of_id(leaf)
            if place is None or place.model is not mine.model or place.root() is root:
                continue
            if root is None or _shapes(root) == _shapes(place.root()):
                return mine.model.__name__
        return None

    # -- steps -------------------------------------------------------------------------------------------------------

    def _hooks_of_parameters(self) -> list[HookRecord]:
        return [h for n in list(self.firings.since_step) if (h := self.hooks[n]).kind in TENSOR and h.owner.leaf]

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._before.clear()
        use = self.optimizers.setdefault(id(optimizer), OptimizerUse(type(optimizer).__name__))
        use.steps, use.last = use.steps + 1, self.timeline.steps
        if use.steps == 1:
            use.first = use.last
            use.parameters = frozenset(id(p) for group in optimizer.param_groups for p in group["params"])
        if not use.with_gradients and id(optimizer) in self.schedulers:
            use.with_gradients = any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
        if kwargs.get("closure") or any(map(callable, args[1:])):
            for hook in self.hooks:
                hook.before_closure += hook.kind == STEP[0] and hook.owner.id == id(optimizer)
            return  # the closure computes the gradients inside the step
        if private.graph_task_id() != -1:
            self.steps_inside += 1
            self.timeline.note_inner_step(self.spread.firing)
        members = self._members.get(optimizer)
        if members is None or len(members) != sum(len(g["params"]) for g in optimizer.param_groups):
            members = {id(p): group for group in optimizer.param_groups for p in group["params"]}
            self._members[optimizer] = members
        for hook in self._hooks_of_parameters():
            parameter = hook.owner.now()
            if parameter is None or id(parameter) not in members:
                hook.outside += not self.places.several_threads  # each thread may have its own optimizer
                continue
            hook.reached += 1
            hook.summed, hook.adding = hook.summed + hook.adding, 0
            hook.optimizers.add(type(optimizer).__name__)
            look = hook.samples[-1] if hook.samples else None
            if look is None or look.steps != self.timeline.steps or hook.reached > SAMPLES:
                continue
            grad = parameter.grad
            if grad is not None and not grad.is_sparse and not is_plain(grad):
                continue
            if look.returned and (grad is None or (not grad.is_sparse and not bool(grad.any()))):
                hook.cleared += 1
            elif (
                look.zeroed is not None
                and grad is not None
                and not grad.is_sparse
                and not bool(grad[look.zeroed].any())
            ):
                self._before[hook.number] = parameter.detach().clone()

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.timeline.steps += 1
        self._stepped = True
        members = self._members.get(optimizer, {})
        for number, before in list(self._before.items()):
            hook = self.hooks[number]
            parameter = hook.owner.now()
            if parameter is not None and parameter.shape == before.shape:
                moved = float((parameter.detach() - before)[hook.samples[-1].zeroed].norm())
                hook.moved.append((moved, mover(members.get(id(parameter), {}))))
        self._before.clear()

    # -- other changes to gradients ----------------------------------------------------------------------------------

    def clipping(self, parameters: Any, max_norm: float, total_norm: Tensor, *_: Any, **__: Any) -> Observer:
        """Observe the clipping of gradients by their norm."""
        yield
        parameters = [parameters] if isinstance(parameters, Tensor) else parameters
        if not isinstance(parameters, Sequence):
            return  # an iterator can be read only once, by the program
        having = {id(p) for p in parameters if p.grad is not None}
        if not having:
            self.empty_clips.append(caller().place)
        factor = float(max_norm) / (float(total_norm) + 1e-6)
        mine = {h.owner.id: h for h in self._hooks_of_parameters() if h.samples and h.owner.id in having}
        factors = {round(h.samples[-1].factor, 6) if h.samples[-1].factor is not None else None for h in mine.values()}
        for hook in mine.values():
            alike = having <= mine.keys() and len(factors) == 1 and None not in factors
            hook.clipped.append((factor, alike))

    def scheduling(self, scheduler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Observer:
        """Observe the creation of a learning-rate scheduler."""
        self.schedulers.setdefault(id(optimizer), caller().place)
        yield

    def scaling(self, scaler: Any, outputs: Any) -> Observer:
        """Observe how a gradient scaler multiplies a loss."""
        yield
        self.timeline.scale = float(scaler.get_scale()) if scaler.is_enabled() else 1.0

    def scaler_step(self, scaler: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Observer:
        """Observe the step of a gradient scaler."""
        before = self.timeline.steps
        try:
            yield
        finally:
            self.skipped_steps += self.timeline.steps == before
            self.timeline.scale = 1.0

    def checking_inputs(self, inputs: Any) -> Observer:
        """Observe the inputs of a reentrant checkpoint."""
        yield
        tensors = [i for i in inputs if isinstance(i, Tensor)] if isinstance(inputs, Sequence) else []
        if tensors and not any(t.requires_grad for t in tensors):
            self.blind_checkpoints.append(caller().place)

    def loading(self, module: Any, *_: Any, **__: Any) -> Observer:
        """Observe the loading of a state dict."""
        found = yield
        missing, unexpected = (tuple(getattr(found, name, ())) for name in ("missing_keys", "unexpected_keys"))
        if missing and unexpected:
            self.ignored_keys.append((caller().place, missing, unexpected))

    def tracing(self, tracer: Any, root: Any, *args: Any, **kwargs: Any) -> Observer:
        """Observe how `torch.fx` traces a model."""
        if isinstance(root, nn.Module):
            self.fx_roots.add(type(root))
        yield

    def compiling(self, model: Any = None, **options: Any) -> Observer:
        """Observe a call of `torch.compile`."""
        owner = getattr(model, "__self__", model)
        if isinstance(owner, nn.Module):
            self.compiler.models.add(owner)
        self.compiles = True
        self.module_calls.stop_counting()
        yield
        self.compiler.listen()
        code = dynamo.wrapper_code()
        if code is not None:
            self.calls_of_code.add(code, self.compiler.calling)

    def compiles_or_runs(self, module: nn.Module) -> bool:
        """Return True if the program has called `torch.compile`, or a compiled model contains the module."""
        return self.compiles or self.compiler.runs(module)

    def functional_call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Observer:
        """Observe a call with other parameters."""
        self.functional |= {id(p) for p in module.parameters()}
        yield


def _shapes(root: nn.Module | None) -> dict[str, Any]:
    return {name: p.shape for name, p in original_module(root).named_parameters()} if root is not None else {}


def mover(group: dict[str, Any]) -> str:
    """Describe why the optimizer moves a parameter whose gradient is zero."""
    causes = []
    if group.get("weight_decay"):
        causes.append(f"weight_decay={group['weight_decay']}")
    if group.get("momentum"):
        causes.append(f"momentum={group['momentum']}")
    if "betas" in group:
        causes.append(f"the running mean of gradients, betas={group['betas']}")
    return " and ".join(causes) or "the optimizer's state"
