"""Read and set private attributes of torch.compile, in functions that state the tested versions.

The compiler takes seconds to load. It is imported only by functions that the doctor calls, and only after the program
has loaded it. `tests/torch_internals/test_compiler.py` fails when torch changes an attribute that a function relies on.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, TypeVar, cast

import torch
from torch import nn

from tenterhook.torch_internals.capabilities import Capability, disabled, find, look_for, needed_for

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


look_for(torch.compiler, "_is_exporting_flag", Capability.COMPILED)

#: True if dynamo traces a hook on a tensor that a graph computes. Tested with torch 2.10 to 2.15; True from 2.13 on.
TRACES_TENSOR_HOOKS = os.path.exists(
    os.path.join(os.path.dirname(torch.__file__), "_higher_order_ops/register_hook.py")
)


def is_exporting() -> bool:
    """Return True while torch.export traces a model.

    It reads the flag itself, because Dynamo of torch 2.11 and earlier takes `torch.compiler.is_exporting()` for True in
    every graph. Hooks in compiled code would then never fire. Tested with torch 2.10 to 2.15.
    """
    return getattr(torch.compiler, "_is_exporting_flag", False)


def shallow_copy(tree: T) -> T:
    """Return `copy.copy(tree)`, also in code that dynamo traces.

    Dynamo of torch 2.10 and 2.11 does not trace `copy.copy`. There, a traced copy has only the fields of a dataclass or
    the items of a mapping. Dynamo of torch 2.14 and 2.15 does not trace it for an OrderedDict. Tested with torch 2.10
    to 2.15.
    """
    if not torch.compiler.is_dynamo_compiling():
        return copy.copy(tree)
    if type(tree) is OrderedDict:
        ordered: Any = OrderedDict(cast(Any, tree))
        return cast(T, ordered)
    if TRACES_TENSOR_HOOKS:  # nothing cheap tells 2.12 from 2.11
        return copy.copy(tree)
    if isinstance(tree, Mapping):
        items: Any = type(tree)()
        for key, value in tree.items():
            items[key] = value
        return cast(T, items)
    if dataclasses.is_dataclass(tree):
        made: T = object.__new__(type(tree))
        for field in dataclasses.fields(tree):
            object.__setattr__(made, field.name, getattr(tree, field.name))
        return made
    return copy.copy(tree)


def is_compiled(module: nn.Module) -> bool:
    """Return True if `torch.compile(module)` or `module.compile()` was called. Tested with torch 2.13."""
    return isinstance(getattr(module, "_orig_mod", None), nn.Module) or is_compiled_in_place(module)


def is_compiled_in_place(module: nn.Module) -> bool:
    """Return True if `module.compile()` was called. Tested with torch 2.13."""
    return getattr(module, "_compiled_call_impl", None) is not None


_EVAL_FRAME = "torch._C._dynamo.eval_frame"
_frames = find(_EVAL_FRAME, Capability.COMPILED, Capability.COMPILED_EXAM)
_strategy = find(f"{_EVAL_FRAME}._FrameExecStrategy", Capability.COMPILED, Capability.COMPILED_EXAM)
_action = find(f"{_EVAL_FRAME}._FrameAction", Capability.COMPILED, Capability.COMPILED_EXAM)
_set_strategy = find(f"{_EVAL_FRAME}.set_code_exec_strategy", Capability.COMPILED, Capability.COMPILED_EXAM)
#: True if dynamo has a setting to skip a function without breaking the graph
_SKIPS = None not in (_strategy, _action, _set_strategy)
#: what dynamo does with a frame, and with the frames that this frame calls
_SKIP_ALL = _strategy(_action.SKIP, _action.SKIP) if _SKIPS else None
_SKIP_ITSELF = _strategy(_action.SKIP, _action.DEFAULT) if _SKIPS else None


def skip_dynamo(fn: F) -> F:
    """Make dynamo skip `fn` and all functions that `fn` calls, except where dynamo traces `fn` as part of a graph.

    `torch.compiler.disable` would cause a graph break in that case. It is used only where dynamo has no such setting.
    Tested with torch 2.13.
    """
    if not _SKIPS:
        outside: F = torch.compiler.disable(fn)
        return outside
    _set_strategy(fn.__code__, _SKIP_ALL)
    return fn


def breaks_graph(fn: F) -> F:
    """Make dynamo break the graph at `fn`. With fullgraph=True, dynamo raises an error that gives the reason.

    This function sets the same attributes as `torch.compiler.disable`, without loading the compiler. Tested with torch
    2.13.
    """
    vars(fn).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_OUTSIDE)
    return skip_dynamo(fn)


_OUTSIDE = (
    "tenterhook supports grad_input, taps, optimizer steps and gradients of compiled autograd only outside compiled "
    "graphs"
)


def tracks_graphs() -> bool:
    """Return True if compiled graphs can be listed and dropped. Otherwise, disable hooks on compiled models.

    Call this only when the compiler is loaded. Tested with torch 2.13.
    """
    compiler = _compiler()
    for owner, name in (
        (compiler.config, "skip_nnmodule_hook_guards"),
        (compiler.config, "_config"),
        (compiler.convert_frame, "input_codes"),
        (_frames, "_debug_get_cache_entry_list"),
        (_frames, "reset_code"),
    ):
        look_for(owner, name, Capability.COMPILED)
    return Capability.COMPILED not in disabled


def checks_hooks(on: bool) -> bool:
    """Set whether compiled code checks modules for new hooks, and return the previous setting.

    By default, compiled code does not check for hooks on a module that had none at compile time. The option itself
    applies only to the current thread and context, so this function changes the option's default value. If the compiler
    is not loaded, this function changes nothing. Tested with torch 2.13.
    """
    compiler = _compiler()
    if compiler is None:
        return False
    config = compiler.config
    before = not config.skip_nnmodule_hook_guards
    config._config["skip_nnmodule_hook_guards"].default = not on
    if config.skip_nnmodule_hook_guards is on:  # the program has set the option in this context
        config.skip_nnmodule_hook_guards = not on
    return before


def may_compile() -> bool:
    """Return True if the compiler is loaded. Tested with torch 2.13."""
    return _compiler() is not None


def _compiler() -> Any:
    """Return the compiler if it is loaded, otherwise None.

    Accessing `torch._dynamo` would load the compiler, which takes seconds. Tested with torch 2.13.
    """
    found = vars(torch).get("_dynamo")
    return found if hasattr(found, "convert_frame") else None


def in_compiled_autograd() -> bool:
    """Return True in a backward pass that compiled autograd runs.

    Such a pass drops the functions that were given to `at_end_of_backward`. Tested with torch 2.13.
    """
    compiled = vars(_compiler() or torch).get("compiled_autograd")
    return bool(vars(compiled).get("in_compiled_autograd_region")) if compiled is not None else False


def compiled_codes() -> list[CodeType]:
    """Return the code objects of the functions that torch.compile has processed so far. Tested with torch 2.13."""
    compiler = _compiler()
    seen = [] if compiler is None or not tracks_graphs() else compiler.convert_frame.input_codes.seen
    return [code for ref in seen if (code := ref()) is not None]


def graphs_of(code: CodeType) -> list[Any]:
    """Return the compiled graphs of a function, one for each set of guards. Tested with torch 2.13."""
    return list(_frames._debug_get_cache_entry_list(code))


def conditions_of(graph: Any) -> Any:
    """Return the guards of a graph that `graphs_of` returned. Tested with torch 2.13."""
    return graph.guard_manager


def classes_in(code: CodeType, conditions: Any) -> frozenset[int]:
    """Return the ids of the classes of all objects that a graph uses.

    The module whose `forward` method was compiled is left out, because its hooks run outside the graph. The classes are
    read from the text of the guards, because each object has a guard on its class. Tested with torch 2.13.
    """
    own = "L['self']" if _FORWARD.match(code.co_name) else None
    return frozenset(int(kind) for source, kind in _CLASS.findall(str(conditions)) if source != own)


_FORWARD = re.compile(r"(torch_dynamo_resume_in_forward_at_.*|forward)\Z")
_CLASS = re.compile(r"TYPE_MATCH: ___check_type_id\((.+?), (\d+)\), type=")


def drop_graphs(code: CodeType) -> None:
    """Drop the compiled graphs of a function, so that its next call compiles it again. Tested with torch 2.13."""
    _frames.reset_code(code)


_include = find("torch._C._dispatch_tls_local_include_set", Capability.COMPILED, otherwise=tuple)
_exclude = find("torch._C._dispatch_tls_local_exclude_set", Capability.COMPILED, otherwise=tuple)
_guard = find("torch._C._ForceDispatchKeyGuard", Capability.COMPILED)
_KEYS = (_include(), _exclude())


def recording_again() -> Any:
    """Return a context manager in which autograd records operations even inside a custom operation.

    Tested with torch 2.13.
    """
    return _guard(*_KEYS)


def never_compile_itself(code: CodeType) -> None:
    """Make dynamo skip frames of this code, but not the frames that they call. Dynamo can still inline this code.

    Tested with torch 2.13.
    """
    if _SKIPS:
        _set_strategy(code, _SKIP_ITSELF)


def _same(_: Any) -> None:
    """Leave the callback as it is."""


#: Set the callback that compiles new frames (None disables compilation), and return the previous callback. Calling this
#: function creates no Python frame. Tested with torch 2.13.
swap_compiler: Callable[[Any], Any] = find(f"{_EVAL_FRAME}.set_eval_frame", Capability.COMPILED_EXAM, otherwise=_same)


_traced: Callable[[], Any] = find(
    "torch._guards.TracingContext.try_get", Capability.COMPILED_EXAM, otherwise=lambda: None
)


def is_tracing() -> bool:
    """Return True while dynamo or AOTAutograd compiles a graph. Tested with torch 2.13."""
    return _traced() is not None


def is_in_compiled_call() -> bool:
    """Return True if a thread is inside a call of a compiled function, which may also compile it.

    Tested with torch 2.13.
    """
    if not may_compile():
        return False
    frames: list[FrameType | None] = list(sys._current_frames().values())
    for frame in frames:
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith("torch._dynamo."):
                return True
            frame = frame.f_back
    return False


@needed_for(Capability.COMPILED_EXAM, otherwise=())
def dynamo_entries() -> tuple[tuple[Any, str], ...]:
    """Return the methods that report a graph break, pass a graph to the backend, and begin to inline a function.

    Each method is given as its class and its name. `graph_break` reads the arguments of the first one. Tested with
    torch 2.10 and 2.13.
    """
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.symbolic_convert import InliningInstructionTranslator, InstructionTranslatorBase

    return (
        (InstructionTranslatorBase, "log_graph_break"),
        (OutputGraph, "call_user_compiler"),
        (InliningInstructionTranslator, "__init__"),
    )


def wrapper_code() -> CodeType | None:
    """Return the code that runs when the result of `torch.compile(module)` is called. Tested with torch 2.13."""
    compiler = _compiler()
    wrapper = getattr(getattr(compiler, "eval_frame", None), "OptimizedModule", None)
    return getattr(vars(wrapper).get("__call__"), "__code__", None) if wrapper is not None else None


def inlined(args: tuple[Any, ...]) -> tuple[CodeType | None, nn.Module | None]:
    """Return the code that dynamo begins to inline, and the module that is its first argument, from the arguments.

    Tested with torch 2.13.
    """
    code = next((one for one in args if isinstance(one, CodeType)), None)
    values = next((one for one in args if isinstance(one, dict)), {})
    first: Any = next(iter(values.values()), None)
    module = first.value if "NNModuleVariable" in type(first).__name__ and hasattr(first, "value") else None
    return code, module


def graph_break(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, list[Frame]]:
    """Return the reason for a graph break, and the frames that dynamo was tracing, innermost last.

    The arguments are those of the first one of `dynamo_entries`: the error, or in torch 2.10 a text and the frames.
    Tested with torch 2.10 and 2.13.
    """
    if "user_stack" in kwargs:
        reason, stack = str(kwargs.get("reason")).rpartition("Graph break encountered:\n")[2], kwargs["user_stack"]
        reason = reason.partition(":\n\n")[2] or reason
    else:
        error = kwargs.get("exc", args[-1])
        reason, stack = str(error), getattr(error, "real_stack", None)
    return reason.partition("\n")[0], [(one.filename, one.lineno or 0, one.name) for one in stack or ()]


def frames_in(text: str | None) -> list[Frame]:
    """Return the frames in the reason for a recompilation, or in the stack of a graph's operation, innermost last.

    The reason has a whole stack, or in torch 2.10 the innermost frame. Tested with torch 2.10 and 2.13.
    """
    found = _FRAME.findall(text or "") or [(os.path.abspath(file), *rest) for file, *rest in _PLACE.findall(text or "")]
    return [(file, int(line), name) for file, line, name in found]


#: the file, the line and the function of a frame
Frame = tuple[str, int, str]
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_PLACE = re.compile(r"  # (\S+):(\d+) in (\w+)$", re.MULTILINE)


@needed_for(Capability.COMPILED_EXAM, otherwise=[])
def compilations(since: Any = None) -> list[Any]:
    """Return the records of all compilations after the record `since`. Dynamo keeps the 64 most recent records.

    Each record has the attributes `co_name`, `recompile_reason` (with a stack) and `fail_type`. Tested with torch 2.13.
    """
    from torch._dynamo import utils

    done = utils.get_compilation_metrics()
    return done[next((number for number, one in enumerate(done) if one is since), -1) + 1 :]


@needed_for(Capability.COMPILED_EXAM, otherwise=0)
def lowered() -> int:
    """Return the number of graphs from which AOTAutograd has removed unused operations. Tested with torch 2.13."""
    from torch._dynamo import utils

    return utils.counters["aot_autograd"]["ok"]


#: namespaces of torch's own operations. Tested with torch 2.13.
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


@needed_for(Capability.COMPILED_EXAM, otherwise=[])
def unused_operations(graph: Any) -> list[tuple[str, str]]:
    """Return the custom operations in a dynamo graph that have no side effect and whose results are unused.

    Each operation is given as its name and the stack of the code that called it. Tested with torch 2.13.
    """
    found = []
    for node in graph.graph.nodes:
        operation = getattr(node.target, "default", node.target)
        if node.op != "call_function" or node.users or not isinstance(operation, torch._ops.OpOverload):
            continue
        if operation.namespace not in _OWN_OPERATIONS and not node.is_impure() and not operation._schema.is_mutable:
            found.append((operation.name(), node.meta.get("stack_trace") or ""))
    return found
