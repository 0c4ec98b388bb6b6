"""Every private attribute of torch.compile that tenterhook touches: one function each, with the versions seen.

The compiler takes seconds to load: only what the doctor asks of it, once it is there, imports it.
`tests/torch_internals/test_compiler.py` fails when torch changes what one of these relies on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C._dynamo import eval_frame as _frames

F = TypeVar("F", bound=Callable[..., Any])


def is_compiled(module: nn.Module) -> bool:
    """Return True if torch.compile was called on the module, or its `compile`. Seen on torch 2.13."""
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


#: what dynamo does with a frame, and with those that it calls
_SKIP_ALL = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.SKIP)
_SKIP_ITSELF = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT)


def skip_dynamo(fn: F) -> F:
    """Have `fn` and all that it calls run uncompiled beside compiled code; inside compiled code it is traced.

    `torch.compiler.disable` would break the graph that it is traced into. Seen on torch 2.13.
    """
    _frames.set_code_exec_strategy(fn.__code__, _SKIP_ALL)
    return fn


def breaks_graph(fn: F) -> F:
    """Have compiled code end before `fn` and go on behind it; with fullgraph=True that is an error that tells why.

    These are the marks that `torch.compiler.disable` sets, without loading the compiler. Seen on torch 2.13.
    """
    vars(fn).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_OUTSIDE)
    return skip_dynamo(fn)


_OUTSIDE = "tenterhook has grad_input, taps, optimizer steps and compiled autograd's gradients outside of graphs only"


def checks_hooks(on: bool) -> bool:
    """Set whether compiled code checks if modules have got hooks; return whether it did.

    By default it does not look at a module that had none. Setting an option sets it for this thread and context
    alone, so its default is set. Nothing is set if the compiler was never loaded. Seen on torch 2.13.
    """
    compiler = _compiler()
    if compiler is None:
        return False
    config = compiler.config
    before = not config.skip_nnmodule_hook_guards
    config._config["skip_nnmodule_hook_guards"].default = not on
    if config.skip_nnmodule_hook_guards is on:  # somebody has set it here
        config.skip_nnmodule_hook_guards = not on
    return before


def may_compile() -> bool:
    """Return True if the compiler was loaded. Seen on torch 2.13."""
    return _compiler() is not None


def _compiler() -> Any:
    """Return the compiler if it was loaded; the first use of the name `torch._dynamo` would load it, for seconds.

    Seen on torch 2.13.
    """
    found = vars(torch).get("_dynamo")
    return found if hasattr(found, "convert_frame") else None


def compiled_codes() -> list[CodeType]:
    """Return the functions that torch.compile has looked at so far. Seen on torch 2.13."""
    compiler = _compiler()
    seen = [] if compiler is None else compiler.convert_frame.input_codes.seen
    return [code for ref in seen if (code := ref()) is not None]


def graphs_of(code: CodeType) -> list[Any]:
    """Return what a function was compiled to, one for each set of guards that it met. Seen on torch 2.13."""
    return list(_frames._debug_get_cache_entry_list(code))


def conditions_of(graph: Any) -> Any:
    """Return the guards under which one of `graphs_of` is run. Seen on torch 2.13."""
    return graph.guard_manager


def classes_in(code: CodeType, conditions: Any) -> frozenset[int]:
    """Return the ids of the classes of what a graph calls, without the module whose forward it is, whose hooks stay
    outside.

    Each object has a guard on its class, which is read as text. Seen on torch 2.13.
    """
    own = "L['self']" if _FORWARD.match(code.co_name) else None
    return frozenset(int(kind) for source, kind in _CLASS.findall(str(conditions)) if source != own)


_FORWARD = re.compile(r"(torch_dynamo_resume_in_forward_at_.*|forward)\Z")
_CLASS = re.compile(r"TYPE_MATCH: ___check_type_id\((.+?), (\d+)\), type=")


def drop_graphs(code: CodeType) -> None:
    """Have a function compiled anew at its next call. Seen on torch 2.13."""
    _frames.reset_code(code)


_KEYS = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())


def recording_again() -> Any:
    """Return a context in which autograd records inside an operation, where it otherwise does not.

    Seen on torch 2.13.
    """
    return torch._C._ForceDispatchKeyGuard(*_KEYS)


def never_compile_itself(code: CodeType) -> None:
    """Have dynamo skip a frame of this code, but not those it calls; it is inlined as before. Seen on torch 2.13."""
    _frames.set_code_exec_strategy(code, _SKIP_ITSELF)


#: Set what compiles the frames to come, None for nothing; return what did so far. No Python frame of its own.
#: Seen on torch 2.13.
swap_compiler: Callable[[Any], Any] = _frames.set_eval_frame


def traced_local(trace: Any, name: str) -> Any:
    """Return the object behind a local of the frame that is compiled; `trace` is comptime's. Seen on torch 2.13."""
    return trace.get_local(name)._i_will_not_complain_if_bc_breaks_VariableTracker().value


def is_tracing() -> bool:
    """Return True if a graph is compiled right now, by dynamo or by AOTAutograd. Seen on torch 2.13."""
    return torch._guards.TracingContext.try_get() is not None


def dynamo_entries() -> tuple[tuple[Any, str], tuple[Any, str]]:
    """Return the functions by which dynamo reports a graph break, its error last, and gives a graph to the backend.

    Each is a class and a name. Seen on torch 2.13.
    """
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    return (InstructionTranslatorBase, "log_graph_break"), (OutputGraph, "call_user_compiler")


def broken_at(error: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function of the frames that dynamo was in at a graph break, the innermost last.

    Seen on torch 2.13.
    """
    return [(frame.filename, frame.lineno or 0, frame.name) for frame in getattr(error, "real_stack", None) or ()]


def compilations(since: Any = None) -> list[Any]:
    """Return, of the last 64 compilations, those after `since`.

    Each has `co_name`, `recompile_reason` and its stack, `fail_type`. Seen on torch 2.13.
    """
    from torch._dynamo import utils

    done = utils.get_compilation_metrics()
    return done[next((number for number, one in enumerate(done) if one is since), -1) + 1 :]


def lowered() -> int:
    """Return how many graphs AOTAutograd has made, which leaves out what nobody uses. Seen on torch 2.13."""
    from torch._dynamo import utils

    return utils.counters["aot_autograd"]["ok"]


#: namespaces of torch's own operations. Seen on torch 2.13.
_OWN_OPERATIONS = (
    "aten",
    "prim",
    "prims",
    "inductor",
    "higher_order",
    "quantized",
    "profiler",
    "rngprims",
    "debugprims",
)


def unused_operations(graph: Any) -> list[tuple[str, str]]:
    """Return the custom operations of a dynamo graph that change nothing and whose result nobody uses.

    Each comes with the stack of the code that called it. Seen on torch 2.13.
    """
    found = []
    for node in graph.graph.nodes:
        operation = getattr(node.target, "default", node.target)
        if node.op != "call_function" or node.users or not isinstance(operation, torch._ops.OpOverload):
            continue
        if operation.namespace not in _OWN_OPERATIONS and not node.is_impure() and not operation._schema.is_mutable:
            found.append((operation.name(), node.meta.get("stack_trace") or ""))
    return found
