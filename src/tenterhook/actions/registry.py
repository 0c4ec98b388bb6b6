"""Registry: the names a plan may use, and the code behind them. Only the program fills one."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, get_type_hints, overload

import msgspec
from torch import Tensor

from tenterhook.actions.batched import BatchMeasure, TensorSpec
from tenterhook.errors import ActionError, nearest
from tenterhook.plan import POINTS, Action, callable_name, callable_place

Merge = Literal["sum", "max", "norm"]

TENSOR_POINTS = tuple(p.name for p in POINTS.values() if p.side != "state" and p.on != ("optimizer",))
MODIFIABLE_POINTS = tuple(p for p in TENSOR_POINTS if POINTS[p].modifies)
GRADIENT_POINTS = ("grad_output", "grad_input", "grad", "grad_accumulated", "grad_final", "value_grad")
FORWARD_POINTS = ("input", "output", "value")
PARAMETER_POINTS = ("grad", "grad_accumulated", "grad_final")


@dataclass(frozen=True, slots=True)
class Partial:
    """One partial result of a two-phase action: how two of them merge, and how many numbers it has."""

    merge: Merge
    width: int = 1


class Definition:
    """An action's code and contract. Calling it with parameters returns the Action that a plan holds."""

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
        #: reports a "trip" that switches hooks with When(after_trip=...) on
        self.trigger = trigger
        #: a user's unnamed function, which may modify or not
        self.plain = plain
        #: makes what measures the tensors of many sites at once
        self.batched: Callable[[Sequence[TensorSpec]], BatchMeasure] | None = None
        self.__doc__ = fn.__doc__
        for point in self.at:
            if point not in POINTS:
                close = nearest(point, list(POINTS))
                raise ActionError(
                    f"the action {name!r} names a point {point!r} that does not exist"
                    + (f"; the nearest is {close[0]!r}" if close else ""),
                    remedy=f"at= is one or several of {', '.join(TENSOR_POINTS)}",
                )
        if bool(measure) != bool(self.partials):
            raise ActionError(
                f"the action {name!r} has {'measure' if measure else 'partials'} alone",
                remedy="a two-phase action gives measure= and partials= together",
            )
        self.takes_ctx = False
        self._params: type[msgspec.Struct] | None = None
        self.tensor_params: frozenset[str] = frozenset()
        if plain:
            self.takes_ctx = _count_positional(fn, name) == 2
        else:
            self._read_signature()

    def _read_signature(self) -> None:
        signature = inspect.signature(self.fn)
        hints = get_type_hints(self.fn, include_extras=True)
        fields: list[Any] = []
        tensors = []
        for p in signature.parameters.values():
            if p.kind is not p.KEYWORD_ONLY:
                if p.default is not p.empty:
                    raise ActionError(
                        f"the parameter {p.name!r} of the action {self.name!r} is positional",
                        remedy=f"make it keyword-only: def {self.name}(x, ctx, *, {p.name}: ... = {p.default!r})",
                    )
                continue
            if p.name not in hints:
                raise ActionError(
                    f"the parameter {p.name!r} of the action {self.name!r} has no type",
                    remedy=f"write {p.name}: float",
                )
            kind = hints[p.name]
            if kind is Tensor:
                tensors.append(p.name)
                kind = str  # a plan names the tensor; attach(tensors=...) gives it
            fields.append((p.name, kind) if p.default is p.empty else (p.name, kind, p.default))
        self.takes_ctx = _count_positional(self.fn, self.name) == 2
        if self.measure is not None and not self.takes_ctx:
            raise ActionError(
                f"the two-phase action {self.name!r} takes one argument",
                remedy="write fn(value, ctx) to modify, with ctx.merged; fn(merged, state) to observe",
            )
        self.tensor_params = frozenset(tensors)
        self._params = msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, frozen=True, kw_only=True)
        keywords = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
        self.__signature__ = inspect.Signature([p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in keywords])

    def __call__(self, *args: Any, **params: Any) -> Action:
        try:
            bound = self.__signature__.bind(*args, **params)
        except TypeError as error:
            raise ActionError(f"{self.name}: {error}", remedy=f"its form is {self.usage}") from None
        for name in self.tensor_params:
            if isinstance(bound.arguments.get(name), Tensor):
                raise ActionError(
                    f"{self.name}: {name} is a tensor, and a plan holds the names of tensors",
                    remedy=f'{self.name}({name}="v"), and attach(..., tensors={{"v": ...}})',
                )
        self.convert(bound.arguments)  # raises for a wrong one
        return Action(self.name, dict(bound.arguments))

    def as_action(self) -> Action:
        return self()

    def __repr__(self) -> str:
        return f"<action {self.name}{getattr(self, '__signature__', '()')}>"

    @property
    def usage(self) -> str:
        """The call with all its parameters, for messages."""
        words = [
            p.name if p.default is p.empty else f"{p.name}={p.default!r}"
            for p in self.__signature__.parameters.values()
        ]
        return f"{self.name}({', '.join(words)})"

    @property
    def two_phase(self) -> bool:
        return self.measure is not None

    def convert(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Convert parameters to their declared types, defaults filled in; raise an ActionError for a wrong one."""
        if self._params is None:
            return dict(params)
        try:
            typed = msgspec.convert(dict(params), self._params)
        except msgspec.ValidationError as error:
            raise ActionError(f"{self.name}: {error}", remedy=f"its form is {self.usage}") from None
        return {f: getattr(typed, f) for f in self._params.__struct_fields__}

    @property
    def fingerprint(self) -> str:
        """A digest of the code objects: comments, line numbers and the docstring do not count."""
        digest = hashlib.sha256()
        for fn in (self.fn, self.measure):
            if fn is not None:
                _digest_callable(digest, fn)
        digest.update(repr((self.at, self.modifies, self.elementwise, self.needs_value, self.version)).encode())
        return digest.hexdigest()[:16]


def _check_state(name: str, state: Mapping[str, float] | None) -> dict[str, float]:
    """Return the declared state, or raise an ActionError if a value of it is no number."""
    found = state or {}
    wrong = (
        next((v for v in found.values() if not isinstance(v, int | float)), None)
        if isinstance(found, Mapping)
        else found
    )
    if wrong is None:
        return dict(found)
    raise ActionError(
        f"the action {name!r} declares its state with a {type(wrong).__name__}",
        remedy='declared state is one number for each target, state={"mean": 0.0}; a tensor is put into ctx.state '
        "without being declared",
    )


def plain_definition(fn: Callable[..., Any], *, at: str) -> Definition:
    """Return a definition for a user's unnamed function, at this one point."""
    return Definition(callable_name(fn), fn, at=(at,), modifies=POINTS[at].modifies, plain=True)


def _count_positional(fn: Callable[..., Any], name: str) -> int:
    """Return 1 for fn(value), 2 for fn(value, ctx); raise for anything else now, not in the middle of a backward."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return 1  # a builtin without a signature
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) and len(required) <= 1:
        return 1
    if len(required) in (1, 2):
        return len(required)
    if not required and positional:
        return 1
    raise ActionError(
        f"{name} at {callable_place(fn)} takes {len(required)} arguments",
        remedy="write fn(value) or fn(value, ctx)",
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
    """Add a code object to the digest, without its docstring, which Python puts first among the constants."""
    digest.update(code.co_code)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    digest.update(repr((code.co_names, arguments, code.co_freevars)).encode())
    for const in (None, *code.co_consts[1:]) if doc is not None and code.co_consts[:1] == (doc,) else code.co_consts:
        if isinstance(const, CodeType):
            _digest_code(digest, const)
        else:
            digest.update(_stable_text(const).encode())


def _stable_text(value: Any) -> str:
    """Return a text of a constant that is the same in every process: no addresses, no order of a set."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_stable_text, value)))}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_stable_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_stable_text(k)}: {_stable_text(v)}' for k, v in value.items()))}}}"
    return callable_name(value) if callable(value) else repr(value)


class Registry:
    """Names and their definitions; the built-in ones are in every registry."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}

    def add(self, definition: Definition) -> Definition:
        have = self.find(definition.name)
        if have is not None and have.fingerprint != definition.fingerprint and have.version >= definition.version:
            raise ActionError(
                f"another action {definition.name!r} is registered, from {callable_place(have.fn)}",
                remedy="give it another name"
                if have is BUILTIN.find(have.name)
                else f"give it another name, or version={have.version + 1} if it takes the other's place",
            )
        self._definitions[definition.name] = definition
        return definition

    def find(self, name: str) -> Definition | None:
        found = self._definitions.get(name)
        return found if found is not None or self is BUILTIN else BUILTIN.find(name)

    def names(self) -> list[str]:
        return sorted({*BUILTIN._definitions, *self._definitions})

    def get(self, name: str) -> Definition:
        found = self.find(name)
        if found is not None:
            return found
        close = nearest(name, self.names())
        raise ActionError(
            f"there is no action {name!r}" + (f"; the nearest is {close[0]!r}" if close else ""),
            remedy=f'import the module that has @th.action("{name}") first (commands: --actions MODULE); a plan never '
            "imports code",
        )


#: what an action's contract may say
CONTRACT = ("at", "modifies", "elementwise", "needs_value", "version", "measure", "partials", "state", "trigger")

BUILTIN = Registry()
#: the process's default registry, filled by @th.action
DEFAULT = Registry()


@overload
def action(name: str | None = None, **contract: Any) -> Callable[[Callable[..., Any]], Definition]: ...
@overload
def action(name: Callable[..., Any], **contract: Any) -> Definition: ...


def action(
    name: str | Callable[..., Any] | None = None, *, registry: Registry | None = None, **contract: Any
) -> Definition | Callable[[Callable[..., Any]], Definition]:
    """Give a function a name that plans and checkpoints can hold.

    `at` is the points it may stand at (default: every tensor point it fits), `modifies` whether what it returns
    replaces the value, `elementwise` whether each element depends on itself alone (so that shards may be taken one
    by one), `needs_value` whether `ctx.value` is wanted, `measure` and `partials` make it two-phase, `state` declares
    packed numbers with their first values. Without a name it has the function's.
    """
    if callable(name):
        named: Callable[[Callable[..., Any]], Definition] = action(registry=registry, **contract)
        return named(name)
    modifies = contract.pop("modifies", False)
    at = contract.pop("at", None) or (MODIFIABLE_POINTS if modifies else TENSOR_POINTS)
    if isinstance(at, str):
        at = (at,)

    for word in contract:
        if word not in CONTRACT:
            close = nearest(word, CONTRACT)
            raise ActionError(
                f"the action {name or ''!r} is given {word}=" + (f"; the nearest is {close[0]}=" if close else ""),
                remedy=f"it takes {', '.join(CONTRACT)}",
            )

    def register(fn: Callable[..., Any]) -> Definition:
        named = callable_name(fn).rpartition(".")[2] if name is None else name
        return (registry or DEFAULT).add(Definition(named, fn, at=at, modifies=modifies, **contract))

    return register
