"""Define what an action is: its code, its parameters and its contract."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Generic, Literal, ParamSpec, get_args, get_origin, get_type_hints

import msgspec
from torch import Tensor

from tenterhook.actions.batched import BatchMeasure, ChangeTogether, TensorSpec
from tenterhook.errors import ActionError, nearest
from tenterhook.plan import POINTS, Action, PointName, callable_name, callable_place, unknown_point

#: the parameters of an action
P = ParamSpec("P")
Merge = Literal["sum", "max", "norm"]

TENSOR_POINTS: tuple[PointName, ...] = tuple(
    p.name for p in POINTS.values() if p.side != "state" and p.on != ("optimizer",)
)
MODIFIABLE_POINTS: tuple[PointName, ...] = tuple(p for p in TENSOR_POINTS if POINTS[p].modifies)
GRADIENT_POINTS: tuple[PointName, ...] = (
    "grad_output",
    "grad_input",
    "grad",
    "grad_accumulated",
    "grad_final",
    "value_grad",
)
FORWARD_POINTS: tuple[PointName, ...] = ("input", "output", "value")
PARAMETER_POINTS: tuple[PointName, ...] = ("grad", "grad_accumulated", "grad_final")


@dataclass(frozen=True, slots=True)
class Partial:
    """A declaration of how one partial result of a two-phase action is merged.

    The `measure` function of the action returns partial results. tenterhook merges them over the calls of a step, over
    shards and over ranks.

    Args:
        merge: How two partial results are merged. `"sum"` adds them, `"max"` takes the larger one, and `"norm"` takes
            the square root of the sum of their squares.
        width: Number of elements in the partial result.

    Example:
        >>> import torch
        >>> import tenterhook as th
        >>> registry = th.Registry()
        >>> def count_signs(x):
        ...     return {"signs": torch.stack([(x < 0).sum(), (x > 0).sum()])}
        >>> @th.action("signs", registry=registry, measure=count_signs, partials={"signs": th.Partial("sum", width=2)})
        ... def signs(merged, state):
        ...     return {"signs": merged["signs"]}
        >>> model = torch.nn.Linear(3, 1)
        >>> rig = th.attach(model, th.Hook("signs", on=".", at="input", do=signs), actions=registry)
        >>> with rig.step():
        ...     y = model(torch.tensor([[1.0, -2.0, 3.0]]))
        >>> rig.vectors("signs")
        {'.': {'signs': [1.0, 2.0]}}
    """

    merge: Merge
    width: int = 1


#: what to write for a wrong `over`, whose default is not what most people mean
_OVER = 'write over="hook" for one norm over all targets of the hook, or over="target" for one norm for each target'


class Definition(Generic[P]):
    """The code and the contract that define an action.

    Calling the definition with parameters returns an `Action` for use in a plan.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        at: Iterable[str],
        modifies: bool,
        elementwise: bool = False,
        needs_value: bool = False,
        version: int = 1,
        measure: Callable[..., Mapping[str, Tensor]] | None = None,
        partials: Mapping[str, Merge | Partial] | None = None,
        state: Mapping[str, float] | None = None,
        trigger: bool = False,
        plain: bool = False,
    ) -> None:
        self.name = name
        self.fn = fn
        self.at = tuple(at)
        self.modifies = modifies
        self.elementwise = elementwise
        self.needs_value = needs_value
        self.version = version
        self.measure = measure
        self.partials = {k: p if isinstance(p, Partial) else Partial(p) for k, p in (partials or {}).items()}
        self.state = _check_state(name, state)
        #: True if the result of the action contains "trip", which activates hooks with When(after_trip=...)
        self.trigger = trigger
        #: True for a function that is not registered with @th.action; it may or may not modify the value
        self.plain = plain
        #: "equal": the engine compares the values of all ranks, and does not call `fn`; "range": the lowest and the
        #: highest of the numbers of all ranks are recorded, and the numbers of one rank are not
        self.across_ranks: Literal["equal", "range"] | None = None
        #: builds the object that measures the tensors of many sites in one call
        self.batched: Callable[[Sequence[TensorSpec]], BatchMeasure] | None = None
        #: changes the tensors of many sites in one call, bit for bit as `fn` would change each of them
        self.together: ChangeTogether | None = None
        self.__doc__ = fn.__doc__
        for point in self.at:
            if point not in POINTS:
                fact, remedy = unknown_point(point)
                raise ActionError(f"the action {name!r}: {fact}", remedy=remedy)
        if bool(measure) != bool(self.partials):
            raise ActionError(
                f"the action {name!r} has {'measure= but not partials=' if measure else 'partials= but not measure='}",
                remedy="give a two-phase action both measure= and partials=",
            )
        if trigger and (measure is None or modifies):
            raise ActionError(
                f"the action {name!r} has trigger=True, but only a two-phase observer can trip",
                remedy='give it measure= and partials=, and return "trip" with its results',
            )
        self.takes_ctx = False
        self._params: type[msgspec.Struct] | None = None
        self.tensor_params: frozenset[str] = frozenset()
        #: for each parameter with a fixed set of values: the values, as text
        self._choices: dict[str, str] = {}
        if plain:
            self.takes_ctx = _count_positional(fn, name) == 2
        else:
            self._read_signature()

    def _read_signature(self) -> None:
        """Read the parameters of the action: those after `/`, or else those that are keyword-only."""
        signature = inspect.signature(self.fn)
        hints = get_type_hints(self.fn, include_extras=True)
        marked = any(p.kind is p.POSITIONAL_ONLY for p in signature.parameters.values())
        found: list[inspect.Parameter] = []
        fields: list[Any] = []
        tensors = []
        for p in signature.parameters.values():
            if p.kind is p.POSITIONAL_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and not marked):
                if p.default is not p.empty:
                    raise ActionError(
                        f"the parameter {p.name!r} of the action {self.name!r} is positional, but must be keyword-only",
                        remedy=f"write def {self.name}(x, ctx, *, {p.name}: ... = {p.default!r})",
                    )
                continue
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                continue
            if p.name not in hints:
                raise ActionError(
                    f"the parameter {p.name!r} of the action {self.name!r} has no type annotation",
                    remedy=f"add a type annotation, for example {p.name}: float",
                )
            kind = hints[p.name]
            if kind is Tensor or kind == Tensor | str:
                tensors.append(p.name)
                kind = str  # a plan holds the name of the tensor; attach(tensors=...) supplies the tensor
            if get_origin(kind) is Literal:
                self._choices[p.name] = ", ".join(map(repr, get_args(kind)))
            found.append(p)
            fields.append((p.name, kind) if p.default is p.empty else (p.name, kind, p.default))
        self.takes_ctx = _count_positional(self.fn, self.name, only=marked) == 2
        if self.measure is not None and not self.takes_ctx:
            raise ActionError(
                f"the two-phase action {self.name!r} takes one argument, but must take two",
                remedy="to modify, write fn(value, ctx) and read ctx.merged; to observe, write fn(merged, state)",
            )
        self.tensor_params = frozenset(tensors)
        self._params = msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
        self.__signature__ = inspect.Signature(
            found if marked else [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in found]
        )

    def __call__(self, *args: P.args, **params: P.kwargs) -> Action:
        return self._action(args, params)

    def as_action(self) -> Action:
        return self._action((), {})

    def _action(self, args: tuple[Any, ...], params: Mapping[str, Any]) -> Action:
        known = self.__signature__.parameters
        for word in params:
            if word not in known:
                close = nearest(word, known)
                raise ActionError(
                    f"{self.name} has no parameter {word!r}" + (f"; the nearest is {close[0]!r}" if close else ""),
                    remedy=self._rename(word, [one for one in close if one not in list(known)[: len(args)]]),
                )
        try:
            bound = self.__signature__.bind(*args, **params)
        except TypeError as error:
            raise ActionError(f"{self.name}: {error}", remedy=f"call it as {self.usage}") from None
        # A plan is data, so it has the name of a tensor. The hook makes the name unique.
        tensors = {name: t for name in self.tensor_params if isinstance(t := bound.arguments.get(name), Tensor)}
        given = {**bound.arguments, **{name: name for name in tensors}}
        self.convert(given)  # raises an error if a parameter has the wrong type or value
        return Action(self.name, given, tensors=tensors)

    def __repr__(self) -> str:
        return f"<action {self.name}{getattr(self, '__signature__', '()')}>"

    @property
    def usage(self) -> str:
        """Return a call of the action as text, with all parameters and defaults, for use in messages."""
        words = [
            p.name if p.default is p.empty else f"{p.name}={p.default!r}"
            for p in self.__signature__.parameters.values()
        ]
        return f"{self.name}({', '.join(words)})"

    @property
    def two_phase(self) -> bool:
        return self.measure is not None

    def convert(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Convert parameters to their declared types and fill in defaults; raise ActionError for an invalid value."""
        if self._params is None:
            return dict(params)
        try:
            typed = msgspec.convert(dict(params), self._params)
        except msgspec.ValidationError as error:
            wrong = self._wrong(error, params)
            remedy = _OVER if wrong.startswith("over=") else f"call it as {self.usage}"
            if unknown := re.search(r"unknown field `(\w+)`$", str(error)):
                remedy = self._rename(unknown[1], nearest(unknown[1], self._params.__struct_fields__))
            raise ActionError(f"{self.name}: {wrong}", remedy=remedy) from None
        return {f: getattr(typed, f) for f in self._params.__struct_fields__}

    def _rename(self, word: str, close: Sequence[str]) -> str:
        """Return what to write instead of an unknown parameter, in Python or in a plan file."""
        return f"write {close[0]} instead of {word}: {self.usage}" if close else f"call it as {self.usage}"

    def _wrong(self, error: msgspec.ValidationError, params: Mapping[str, Any]) -> str:
        """Describe a parameter that has the wrong type or value, with the values that it may have."""
        absent = re.search(r"field `(\w+)`$", str(error))
        if absent and "unknown" in str(error):
            close = nearest(absent[1], self._params.__struct_fields__ if self._params else (), 1)
            return f"it has no parameter {absent[1]!r}" + (f"; the nearest is {close[0]!r}" if close else "")
        if absent:
            return f"the parameter {absent[1]!r} is missing"
        named = re.search(r"`\$\.(\w+)`$", str(error))
        if named is None or named[1] not in params:
            return str(error)
        name = named[1]
        choices = self._choices.get(name)
        problem = str(error).partition(" - at ")[0].replace("`", "").replace("Expected ", "must be ")
        if name in self.tensor_params:
            problem = "must be a tensor, or the name of a tensor in attach(tensors=...)"
        return f"{name}={params[name]!r}: {name} {f'must be one of {choices}' if choices else problem}"

    @property
    def fingerprint(self) -> str:
        """Return a digest of the code, independent of comments, line numbers and the docstring."""
        digest = hashlib.sha256()
        for fn in (self.fn, self.measure):
            if fn is not None:
                _digest_callable(digest, fn)
        digest.update(repr((self.at, self.modifies, self.elementwise, self.needs_value, self.version)).encode())
        return digest.hexdigest()[:16]


def _check_state(name: str, state: Mapping[str, float] | None) -> dict[str, float]:
    """Return the declared state, or raise an ActionError if one of its values is not a number."""
    found = state or {}
    wrong = (
        next((v for v in found.values() if not isinstance(v, int | float)), None)
        if isinstance(found, Mapping)
        else found
    )
    if wrong is None:
        return dict(found)
    raise ActionError(
        f"the action {name!r} declares state of type {type(wrong).__name__}, but declared state consists of numbers",
        remedy='declare one number for each name, as in state={"mean": 0.0}. Store tensors in ctx.state without '
        "declaring them",
    )


def plain_definition(fn: Callable[..., Any], *, at: str) -> Definition[...]:
    """Return a definition, valid only at this point, for a function that is not registered with `@th.action`."""
    return Definition(callable_name(fn), fn, at=(at,), modifies=POINTS[at].modifies, plain=True)


def _count_positional(fn: Callable[..., Any], name: str, *, only: bool = False) -> int:
    """Return 1 for fn(value) and 2 for fn(value, ctx). With `only`, count the parameters before `/`.

    Raise an ActionError for any other signature. Without this check, the call would fail later, during a backward pass.
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin without a signature
    kinds = [inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD][: 1 if only else 2]
    positional = [p for p in parameters if p.kind in kinds]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and len(required) <= 1:
        return 1
    if len(required) in (1, 2):
        return len(required)
    if not required and positional:
        return 1
    remedy = "write fn(value) or fn(value, ctx)"
    if len(required) in (3, 4):
        remedy += ". The arguments of a PyTorch hook are not passed: ctx.target is the name of the target"
    raise ActionError(
        f"{name} at {callable_place(fn)} takes {len(required)} arguments, but an action takes 1 or 2", remedy=remedy
    )


def _digest_callable(digest: Any, fn: Callable[..., Any]) -> None:
    inner = inspect.unwrap(fn)
    code = getattr(inner, "__code__", None)
    if code is None:
        digest.update(callable_name(fn).encode())
        return
    _digest_code(digest, code, doc=getattr(inner, "__doc__", None))
    digest.update(_stable_text(getattr(inner, "__defaults__", None)).encode())
    digest.update(_stable_text(getattr(inner, "__kwdefaults__", None)).encode())


def _digest_code(digest: Any, code: CodeType, doc: str | None = None) -> None:
    """Add a code object to the digest, except for its docstring, which Python stores as the first constant."""
    digest.update(code.co_code)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    digest.update(repr((code.co_names, arguments, code.co_freevars)).encode())
    for const in (None, *code.co_consts[1:]) if doc is not None and code.co_consts[:1] == (doc,) else code.co_consts:
        if isinstance(const, CodeType):
            _digest_code(digest, const)
        else:
            digest.update(_stable_text(const).encode())


def _stable_text(value: Any) -> str:
    """Return text that represents a constant identically in every process: without addresses, with sorted sets."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_stable_text, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_stable_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_stable_text(k)}: {_stable_text(v)}' for k, v in value.items()))}}}"
    return callable_name(value) if callable(value) else repr(value)
