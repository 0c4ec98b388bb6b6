"""Read a hook's bytecode, without running the hook, to find what the hook returns, discards and refers to."""

from __future__ import annotations

import dis
import inspect
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise, takewhile
from types import CodeType
from typing import Any, NamedTuple

from tenterhook.doctor.reading.functions import bare

#: flag of code whose first constant is its docstring; before Python 3.14, this constant is the docstring or None
_HAS_DOCSTRING = 0x4000000
#: methods that compute a new gradient from a gradient
_CHANGES = frozenset(
    [
        "clamp",
        "clip",
        "clamp_min",
        "clamp_max",
        "mul",
        "div",
        "add",
        "sub",
        "neg",
        "sign",
        "masked_fill",
        "nan_to_num",
        "where",
        "renorm",
        "multiply",
        "divide",
        "true_divide",
        "tanh",
        "fill",
        "zeros_like",
        "new_zeros",
    ]
)


#: tensor methods that synchronize with the device
_WAITS = frozenset(["item", "tolist", "cpu", "numpy"])


#: functions and methods that limit a gradient
LIMITS = frozenset(
    [
        "clamp",
        "clip",
        "clamp_",
        "clamp_min",
        "clamp_max",
        "norm",
        "vector_norm",
        "minimum",
        "maximum",
        "tanh",
        "clip_grad_norm_",
        "clip_grad_value_",
    ]
)


#: methods that an observer uses to store the value that it received
_KEEPS = frozenset(["append", "extend", "add", "update", "put", "write", "log", "add_scalar", "add_histogram"])


@dataclass(frozen=True, slots=True)
class Reading:
    """The facts that were read from a function's bytecode."""

    #: True if the function returns a value that is not None
    returns: bool
    #: the name of the variable for a new gradient that the function computes but discards; "" if the gradient is not
    #: assigned to a variable; None if the function does not discard a new gradient
    lost: str | None
    #: the methods that the function calls and that synchronize with the device
    waits: tuple[str, ...]
    #: True if the function clamps values or computes a norm
    limits: bool
    #: the names of the arguments that PyTorch passes
    arguments: tuple[str, ...]


def read(fn: Callable[..., Any]) -> Reading | None:
    """Read a function's bytecode. Return None if the function has no bytecode (for example, a builtin)."""
    code = getattr(bare(fn), "__code__", None)
    if code is None:
        return None
    bound = 1 if inspect.ismethod(fn) or (not inspect.isfunction(fn) and not isinstance(fn, partial)) else 0
    named: frozenset[str] = frozenset()
    while isinstance(fn, partial):
        bound, named, fn = bound + len(fn.args), named | frozenset(fn.keywords), fn.func
        bound += inspect.ismethod(fn)
    defaults = len(getattr(bare(fn), "__defaults__", None) or ())
    return _read(code, bound, defaults, named)


@lru_cache(maxsize=1024)
def _read(code: types.CodeType, bound: int, defaults: int, named: frozenset[str]) -> Reading:
    """Read the code of a function in which the first `bound` arguments and the arguments in `named` are already bound.

    PyTorch passes the remaining arguments.
    """
    free = code.co_varnames[: code.co_argcount - defaults]
    arguments = (*free[:bound], *(name for name in free[bound:] if name not in named))
    given = arguments[bound:]
    steps = _steps(code)
    returns = any(
        step.op == "RETURN_VALUE" and not (before.op == "LOAD_CONST" and before.value is None)
        for before, step in pairwise(steps)
    )
    waits = tuple(dict.fromkeys(s.value for s in steps if s.op in _METHODS and s.value in _WAITS))
    limits = any(s.op in (*_METHODS, "LOAD_GLOBAL") and s.value in LIMITS for s in steps)
    return Reading(returns, None if returns else _lost(steps, given), waits, limits, given)


_METHODS = ("LOAD_METHOD", "LOAD_ATTR")


class Step(NamedTuple):
    op: str
    value: Any


#: instructions without meaning for the analysis
_SILENT = frozenset(["CACHE", "RESUME", "PRECALL", "NOP", "NOT_TAKEN", "PUSH_NULL", "COPY_FREE_VARS"])


def _steps(code: types.CodeType) -> list[Step]:
    """List the instructions that matter for the analysis, in the form that Python 3.11 has.

    Later versions combine two instructions into one, or give them other names.
    """
    found: list[Step] = []
    begin = 0
    for one in dis.get_instructions(code):
        op, value = one.opname, one.argval
        if op in _SILENT or one.offset < begin:
            continue
        if op == "POP_JUMP_IF_FALSE" and [s.op for s in found[-3:]] == ["COPY", "LOAD_COMMON_CONSTANT", "IS_OP"]:
            # Python 3.14 runs tuple(... for ...) as a loop if `tuple` is the builtin. The plain call follows the loop.
            del found[-3:]
            begin = value
            continue
        if op.startswith(("LOAD_FAST", "STORE_FAST")):
            # STORE_FAST_LOAD_FAST has a pair of names, LOAD_FAST_BORROW one name.
            names = value if isinstance(value, tuple) else (value,)
            kinds = re.findall("LOAD_FAST|STORE_FAST", op)
            found += [Step(kind, name) for kind, name in zip(kinds, names, strict=True)]
        elif op == "BINARY_OP":
            found.append(Step("BINARY_SUBSCR" if one.argrepr == "[]" else op, one.argrepr))
        elif op == "KW_NAMES":
            found.append(Step(op, code.co_consts[one.arg or 0]))
        elif op == "CALL_KW":  # the names of the keywords are on the stack
            found += [Step("KW_NAMES", found.pop().value), Step("CALL", value)]
        elif op == "RETURN_CONST":
            found += [Step("LOAD_CONST", value), Step("RETURN_VALUE", None)]
        else:
            found.append(Step(op, value))
    return found


#: methods of a tensor that read or change its values
_OF_VALUES = (
    *("abs", "add_", "clamp", "clamp_", "copy_", "div_", "isfinite", "isinf", "isnan", "max", "mean", "min", "mul_"),
    *("norm", "pow", "square", "std", "sub_", "sum", "zero_"),
)


def reads(code: CodeType, name: str) -> bool:
    """Return True if code reads a local variable."""
    return any(one.argval == name and one.opname.startswith("LOAD") for one in dis.get_instructions(code))


def texts_in(code: CodeType) -> list[str]:
    """List the texts in some code, without its docstring."""
    documented = sys.version_info < (3, 14) or bool(code.co_flags & _HAS_DOCSTRING)
    return [one for one in code.co_consts[documented:] if isinstance(one, str)]


def text_of(code: CodeType) -> int:
    """Return a number that is the same for code that was compiled from the same text."""
    constants = tuple(text_of(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts)
    return hash((code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))


def loads_attribute(code: CodeType, name: str) -> bool:
    """Return True if code reads an attribute of this name, also in the functions that it defines."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    loads = (one.opname.startswith("LOAD") and one.argval == name for one in dis.get_instructions(code))
    return (name in code.co_names and any(loads)) or any(loads_attribute(one, name) for one in inner)


def first_item(code: CodeType, name: str) -> str | None:
    """Return `name[0]` if the code reads the first item of a variable and does not ask for its class, or None."""
    if {"isinstance", "type", "is_tensor"} & set(code.co_names):
        return None
    steps = _steps(code)
    for one, index, after in zip(steps, steps[1:], steps[2:]):
        if one.value == name and one.op.startswith("LOAD") and index.value == 0 and after.op == "BINARY_SUBSCR":
            return f"{name}[0]"
    return None


def returns_after(code: CodeType, name: str) -> bool:
    """Return True if the code calls a function of this name, tests the result, and then returns None."""
    steps = _steps(code)
    at = next((number for number, step in enumerate(steps) if step.value == name), len(steps))
    tested = [number for number, step in enumerate(steps) if number > at and "JUMP" in step.op]
    if not tested:
        return False
    after = [step.op if step.value is None else "" for step in steps[tested[0] + 1 : tested[0] + 3]]
    return after == ["LOAD_CONST", "RETURN_VALUE"] or "IF_TRUE" in steps[tested[0]].op


def by_sample(code: CodeType) -> bool:
    """Return True if the code multiplies batches sample by sample, or computes a norm of each sample."""
    names, steps = set(code.co_names), _steps(code)
    along = any(step.op == "KW_NAMES" and "dim" in step.value for step in steps)
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    direct = bool(names & {"einsum", "bmm", "baddbmm"}) or (along and bool(names & {"norm", "vector_norm"}))
    return direct or any(map(by_sample, inner))


def counts(code: CodeType) -> bool:
    """Return True if the code adds to a variable that outlives the call, as in `module.calls += 1`."""
    steps = _steps(code)
    stores = ("STORE_ATTR", "STORE_SUBSCR", "STORE_DEREF", "STORE_GLOBAL")
    added = (number for number, step in enumerate(steps) if step.value in ("+=", "-=") and step.op == "BINARY_OP")
    return any(step.op in stores for number in added for step in steps[number + 1 : number + 4])


def adds(code: CodeType) -> bool:
    """Return True if the code adds to a value in place."""
    return any(step.value == "+=" or step.value in ("add_", "index_add_", "scatter_add_") for step in _steps(code))


def reads_what_it_stores(code: CodeType) -> bool:
    """Return True if the code computes the new value of an attribute from the old one, as in `a.b = a.b + c`."""
    steps = _steps(code)
    stored = {step.value for step in steps if step.op == "STORE_ATTR"}
    read = {step.value for step in steps if step.op == "LOAD_ATTR"}
    return bool(stored & read) and any(step.op == "BINARY_OP" for step in steps)


def replaces_a_sum(code: CodeType) -> bool:
    """Return True if the code stores an item that it computes from items, as in `a[k] = a[k] + c`."""
    steps = _steps(code)
    items: dict[str, set[tuple[Any, ...]]] = {"BINARY_SUBSCR": set(), "STORE_SUBSCR": set()}
    for number, step in enumerate(steps):
        if step.op in items:  # the two instructions before it load the container and the key
            items[step.op].add(tuple(str(one.value) for one in steps[max(number - 2, 0) : number]))
    return bool(items["BINARY_SUBSCR"] & items["STORE_SUBSCR"]) and any(one.op == "BINARY_OP" for one in steps)


def value_read(code: CodeType, name: str) -> str | None:
    """Return the first expression, such as `p.norm()`, that uses the values of a tensor, or None.

    None is also returned if the code reads the attribute `grad` of any object. If the name says that the tensor is a
    gradient, any attribute counts.
    """
    named, steps = name.startswith("grad"), list(dis.get_instructions(code))
    read = any(one.opname in ("LOAD_ATTR", "LOAD_METHOD") and one.argval == "grad" for one in steps)
    if read or ("grad" in code.co_names and not named):
        return None
    for one, after in pairwise(steps):
        if one.argval != name or not one.opname.startswith("LOAD"):
            continue
        if after.argval in _OF_VALUES:
            return f"{name}.{after.argval}()"
        if named:
            return name
    return None


def _lost(steps: list[Step], given: tuple[str, ...]) -> str | None:
    loads: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.op == "LOAD_FAST":
            loads[step.value] = number
    for number, step in enumerate(steps[1:], 1):
        if step.op not in ("STORE_FAST", "POP_TOP"):
            continue
        made = _expression(steps, number)
        if step.op == "STORE_FAST" and step.value in given[1:] and loads.get(step.value, -1) < number:
            return str(step.value)  # a new value for an argument, which nothing reads
        if not _changes(made, given):
            continue
        if step.op == "POP_TOP":
            return ""
        unread = loads.get(step.value, -1) < number
        if unread or (step.value in given and not _keeps(steps)):
            return str(step.value)
    return _edited(steps, given)


def _edited(steps: list[Step], given: tuple[str, ...]) -> str | None:
    """Find a variable that holds a clone of an argument, is changed by item assignment and is never read afterwards."""
    copies = {
        steps[n].value
        for n in range(1, len(steps))
        if steps[n].op == "STORE_FAST"
        and any(s.value == "clone" for s in _expression(steps, n))
        and any(s.op == "LOAD_FAST" and s.value in given for s in _expression(steps, n))
    }
    if any(s.op in _METHODS and s.value in _KEEPS for s in steps):
        return None
    for number, step in enumerate(steps):
        if step.op == "STORE_SUBSCR":
            before = [s.value for s in _expression(steps, number) if s.op == "LOAD_FAST"]
            found = next((name for name in before if name in copies), None)
            if found is not None and not any(s.op == "LOAD_FAST" and s.value == found for s in steps[number:]):
                return str(found)
    return None


def _keeps(steps: list[Step]) -> bool:
    """Return True if the function stores a value where it outlives the call."""
    stores = ("STORE_SUBSCR", "STORE_ATTR", "STORE_DEREF", "STORE_GLOBAL")
    return any(s.op in stores or (s.op in _METHODS and s.value in _KEEPS) for s in steps)


def _expression(steps: list[Step], end: int) -> list[Step]:
    """Return the statement's instructions before index `end`, back to the previous store, pop or return."""
    first = end
    while first > 0 and steps[first - 1].op not in ("STORE_FAST", "POP_TOP", "RETURN_VALUE", "STORE_SUBSCR"):
        first -= 1
    return steps[first:end]


def _changes(made: list[Step], given: tuple[str, ...]) -> bool:
    """Return True if the statement computes a new value from an argument (by operator, method or torch function)."""
    if not made or not any(s.op == "LOAD_FAST" and s.value in given for s in made):
        return False
    first, last = made[0], made[-1].op
    if last == "BINARY_OP":
        return not made[-1].value.endswith("=")
    chain = [s.value for before, s in pairwise(made) if s.op in _METHODS and _begins_chain(before, given)]
    if last == "BUILD_TUPLE":
        return any(s.op == "BINARY_OP" for s in made) or any(name in _CHANGES for name in chain)
    if not last.startswith("CALL") or any(s.op == "KW_NAMES" and "out" in s.value for s in made):
        return False
    if first.op == "LOAD_GLOBAL":
        path = [s.value for s in takewhile(lambda s: s.op in _METHODS, made[1:])]
        if first.value == "tuple":
            return not any(s.op in _METHODS for s in made)  # tuple(g * 2 for g in grads), not tuple(out.shape)
        return first.value in _TORCH and bool(path) and path[-1] in _MAKES
    return bool(chain) and chain[-1] in _CHANGES


def _begins_chain(before: Step, given: tuple[str, ...]) -> bool:
    """Return True if the next method is called on an argument, or on the result of a call."""
    return (before.op == "LOAD_FAST" and before.value in given) or before.op.startswith("CALL")


#: names under which `torch` is usually imported
_TORCH = ("torch", "F", "functional", "nn")


#: torch functions that compute a new gradient from a gradient
_MAKES = _CHANGES | frozenset(["normalize", "softmax", "relu", "gelu", "dropout", "ones_like", "sigmoid", "abs"])
