"""Edit the functions of hooks: each function here corrects one kind of fault, or returns nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tenterhook.doctor.edits.source import Change, Function, LineText

#: methods of a container that store their last argument
_STORES = ("append", "add", "appendleft", "__setitem__", "put")


@dataclass(frozen=True)
class HookText(LineText):
    """The text of a hook's function, and the line that registers the hook."""

    function: Function
    #: the names of the arguments that PyTorch passes
    arguments: tuple[str, ...]
    #: the PyTorch function that registers the hook
    register: str

    @property
    def body(self) -> list[ast.stmt]:
        return self.function.body if isinstance(self.function, ast.FunctionDef) else []

    def nodes(self) -> Iterator[ast.AST]:
        """Yield the nodes of the function's body."""
        parts = [self.function.body] if isinstance(self.function, ast.Lambda) else self.function.body
        for part in parts:
            yield from ast.walk(part)

    def uses(self, name: str) -> list[ast.Name]:
        """List the places at which the function reads a variable."""
        return [one for one in self.nodes() if isinstance(one, ast.Name) and one.id == name and _is_load(one)]

    def items(self, name: str) -> Iterator[tuple[ast.Subscript, object]]:
        """Yield the places at which the function takes an item of a variable, with the constant index."""
        for one in self.nodes():
            if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name) and one.value.id == name:
                yield one, one.slice.value if isinstance(one.slice, ast.Constant) else None

    def returned(self) -> list[ast.expr]:
        """List the expressions that the function returns."""
        if isinstance(self.function, ast.Lambda):
            return [self.function.body]
        returns = (one.value for one in self.nodes() if isinstance(one, ast.Return))
        return [one for one in returns if one is not None and not (isinstance(one, ast.Constant) and one.value is None)]

    def registration(self) -> ast.Call | None:
        """Return the call that registers the hook."""
        calls = {
            node
            for statement in self.source.statements(self.line)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and _method(node) == self.register
            if node.lineno <= self.line <= (node.end_lineno or node.lineno)
        }
        return calls.pop() if len(calls) == 1 else None


def return_the_value(text: HookText, name: str, *, as_tuple: bool) -> Iterator[Change]:
    """Return the new value that the function computes and discards. `name` is its variable, or ""."""
    if not text.body:
        return
    last = text.body[-1]
    if name:
        yield text.source.after(last, f"return ({name},)" if as_tuple else f"return {name}")
    elif isinstance(last, ast.Expr):
        begin = text.source.begin(last)
        yield Change(begin, begin, "return ")


def change_a_copy(text: HookText, name: str) -> Iterator[Change]:
    """Change a copy of an argument, and return it."""
    if isinstance(text.function, ast.Lambda):
        yield from (text.source.instead(one, f"{name}.clone()") for one in text.uses(name))
        return
    first = text.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):  # the docstring
        yield text.source.after(first, f"{name} = {name}.clone()")
    else:
        yield text.source.before(first, f"{name} = {name}.clone()")
    if not text.returned() and not isinstance(text.body[-1], ast.Return):
        yield text.source.after(text.body[-1], f"return {name}")


def store_a_copy(text: HookText, method: str = "clone") -> Iterator[Change]:
    """Store a copy of each tensor that the function stores."""
    for value in _stored(text):
        written = text.source.written(value)
        if not written.endswith(f".{method}()") and set(text.arguments) & _names(value):
            shown = f"({written})" if isinstance(value, ast.BinOp | ast.IfExp | ast.UnaryOp) else written
            yield text.source.instead(value, f"{shown}.{method}()")


def store_with_the_graph(text: HookText) -> Iterator[Change]:
    """Store each tensor that the function stores without `detach()`."""
    for value in _stored(text):
        for node in ast.walk(value):
            if isinstance(node, ast.Call) and _method(node) == "detach" and isinstance(node.func, ast.Attribute):
                yield text.source.instead(node, text.source.written(node.func.value))


def _stored(text: HookText) -> Iterator[ast.expr]:
    for node in text.nodes():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript | ast.Attribute):
            yield node.value
        elif isinstance(node, ast.Call) and _method(node) in _STORES and node.args:
            yield node.args[-1]


def read_keyword_arguments(text: HookText, names: Mapping[int, str]) -> Iterator[Change]:
    """Read the keyword arguments of the module. `names` are those of its positional arguments, by index."""
    call = text.registration()
    args = text.arguments[1] if len(text.arguments) > 1 else ""
    found = list(text.items(args))
    other = len(text.uses(args)) != len(found) or any(index not in names for _, index in found)
    if call is None or not text.body or other or not found:
        return
    if text.register == "register_forward_pre_hook" and text.returned():
        return
    assert isinstance(text.function, ast.FunctionDef)
    parameter = next(one for one in text.function.args.args if one.arg == args)
    end = text.source.at(parameter.end_lineno or 0, parameter.end_col_offset or 0)
    yield Change(end, end, ", kwargs")
    for one, index in found:
        assert isinstance(index, int)
        yield text.source.instead(one, f'kwargs["{names[index]}"]')
    end = text.source.end(call) - 1
    yield Change(end, end, ", with_kwargs=True")


def read_the_gradient(text: HookText) -> Iterator[Change]:
    """Read the gradient of the parameter instead of its values."""
    yield from (text.source.instead(one, f"{one.id}.grad") for one in text.uses(text.arguments[0]))


def take_the_whole_output(text: HookText) -> Iterator[Change]:
    """Take the output itself instead of its first item."""
    name = text.arguments[-1]
    for value in text.returned():
        only = _only_item(value, name)
        if only is not None:
            yield Change(text.source.begin(value), text.source.begin(only), "")
            yield Change(text.source.end(only), text.source.end(value), "")
    for one, index in text.items(name):
        if index == 0:
            yield text.source.instead(one, name)


def _only_item(value: ast.expr, name: str) -> ast.expr | None:
    """Return `x` of `(x,)`, of `(x,) + output[1:]` and of `(x, *output[1:])`."""
    if isinstance(value, ast.BinOp) and name in _names(value.right):
        value = value.left
    if not isinstance(value, ast.Tuple):
        return None
    items = [one for one in value.elts if not isinstance(one, ast.Starred)]
    return items[0] if len(items) == 1 else None


def return_none(text: HookText) -> Iterator[Change]:
    """Return None instead of the value of an expression that does something."""
    for value in text.returned():
        written = text.source.written(value)
        if isinstance(text.function, ast.Lambda):
            yield text.source.instead(value, f"({written}, None)[1]")
        elif isinstance(value, ast.Call):
            begin = text.source.begin(value)
            yield Change(begin - len("return "), begin, "")
        else:
            yield text.source.instead(value, "None")


def insert_at_the_front(text: HookText) -> Iterator[Change]:
    """Insert values at the front of a list instead of appending them."""
    for node in text.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
            yield Change(text.source.end(node.func.value), text.source.begin(node.args[0]), ".insert(0, ")


def bind_now(text: HookText) -> Iterator[Change]:
    """Bind the variables that the function uses as keys when the function is defined."""
    arguments = text.function.args
    own = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
    keys: dict[str, None] = {}
    for node in text.nodes():
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            key = node.slice
        elif isinstance(node, ast.Call) and _method(node) in ("__setitem__", "setdefault") and node.args:
            key = node.args[0]
        if isinstance(key, ast.Name) and key.id not in own:
            keys[key.id] = None
    yield from _bind(text, list(keys))


def bind(name: str) -> Callable[[HookText], Iterator[Change]]:
    """Return an edit that binds a variable when the function is defined."""
    return lambda text: _bind(text, [name])


def _bind(text: HookText, names: list[str]) -> Iterator[Change]:
    arguments = text.function.args
    if names and arguments.args and not arguments.vararg:
        last = arguments.args[-1]
        end = text.source.at(last.end_lineno or 0, last.end_col_offset or 0)
        default = arguments.defaults[-1] if arguments.defaults else None
        end = end if default is None else text.source.end(default)
        yield Change(end, end, "".join(f", {name}={name}" for name in names))


def return_every_argument(text: HookText) -> Iterator[Change]:
    """Return the arguments that a pre-hook does not change, too."""
    args = text.arguments[1]
    for value in text.returned():
        only = value.elts[0] if isinstance(value, ast.Tuple) and len(value.elts) == 1 else value
        if not isinstance(only, ast.Tuple):
            yield text.source.instead(value, f"({text.source.written(only)}, *{args}[1:])")


def after_accumulation(text: HookText) -> Iterator[Change]:
    """Register a hook that runs after the gradient was added."""
    call = text.registration()
    if call is None or text.uses(text.arguments[0]) or not isinstance(call.func, ast.Attribute):
        return
    end = text.source.end(call.func)
    yield Change(end - len(text.register), end, "register_post_accumulate_grad_hook")


def compute_in_32_bits(text: HookText) -> Iterator[Change]:
    """Compute norms and sums of 32-bit numbers."""
    for node in text.nodes():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            value = node.func.value
            if node.func.attr in ("norm", "sum", "mean", "square", "pow", "var", "std") and not isinstance(
                value, ast.Call
            ):
                yield text.source.instead(value, f"{text.source.written(value)}.float()")


def read_the_prefix(text: HookText, index: int) -> Iterator[Change]:
    """Put the prefix before each key of a state dict. `index` is the argument that is the prefix."""
    state, prefix = text.arguments[index - 1 : index + 1]
    changes = []
    for node in text.nodes():
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == state:
            key = node.slice
        elif isinstance(node, ast.Call) and _method(node) in ("pop", "get") and state in _names(node.func):
            key = node.args[0]
        elif isinstance(node, ast.Compare) and state in _names(node.comparators[0]):
            key = node.left
        if isinstance(key, ast.Constant):
            changes.append(text.source.instead(key, f"{prefix} + {text.source.written(key)}"))
        elif key is not None:
            return  # a key that is computed may already contain the prefix
    yield from changes


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)
