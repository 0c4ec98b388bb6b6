"""Test that the patch of a finding corrects the program, and that a text of another form gets no patch."""

from __future__ import annotations

import ast
import subprocess
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.edits.hook_functions import HookText
from tenterhook.doctor.edits.program_lines import call_it, call_the_module, loop_over_a_copy
from tenterhook.doctor.edits.source import Change, LineText, Source

Edit = Callable[..., Iterable[Change]]


def patched(
    tmp_path: Path, text: str, edit: Callable[..., Iterable[Change]], *, register: str = "register_hook"
) -> str:
    """Apply an edit of the first function of a program with `patch`, and return the new text."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(text))
    source = Source.of(str(file))
    assert source is not None
    functions = (one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef | ast.Lambda))
    function = next(functions, None)
    lines = source.text.splitlines()
    line = next((n for n, one in enumerate(lines, 1) if f".{register}(" in one), len(lines))
    plain = LineText(source, line)
    if function is not None:
        names = tuple(one.arg for one in function.args.args)
        plain = HookText(source, line, function, names, register)
    diff = source.diff(edit(plain))
    subprocess.run(["patch", "-s", file], input=diff, text=True, check=True)
    return file.read_text()


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        pytest.param(
            partial(edits.return_the_value, name="g", as_tuple=False),
            "def fn(grad):\n    if True:\n        g = grad * 2\n",
            "def fn(grad):\n    if True:\n        g = grad * 2\n    return g\n",
            id="return a variable",
        ),
        pytest.param(
            partial(edits.return_the_value, name="g", as_tuple=True),
            "def fn(module, grad_input, grad_output):\n    g = grad_input[0] * 2\n",
            "def fn(module, grad_input, grad_output):\n    g = grad_input[0] * 2\n    return (g,)\n",
            id="return a tuple",
        ),
        pytest.param(
            partial(edits.return_the_value, name="", as_tuple=False),
            "def fn(grad):\n    grad.clamp(-1, 1)\n",
            "def fn(grad):\n    return grad.clamp(-1, 1)\n",
            id="return an expression",
        ),
        pytest.param(
            partial(edits.change_a_copy, name="grad"),
            'def fn(grad):\n    """Mask."""\n    grad[0] = 0\n',
            'def fn(grad):\n    """Mask."""\n    grad = grad.clone()\n    grad[0] = 0\n    return grad\n',
            id="change a copy",
        ),
        pytest.param(
            partial(edits.change_a_copy, name="grad"),
            "fn = lambda grad: grad.mul_(2)\n",
            "fn = lambda grad: grad.clone().mul_(2)\n",
            id="change a copy in a lambda",
        ),
        pytest.param(
            edits.store_a_copy,
            "def fn(module, args, output):\n    kept[0] = output.detach()\n    seen.append(output + 1)\n",
            "def fn(module, args, output):\n    kept[0] = output.detach().clone()\n"
            "    seen.append((output + 1).clone())\n",
            id="store a copy",
        ),
        pytest.param(
            partial(edits.store_a_copy, method="detach"),
            "fn = lambda module, args, output: kept.append(output)\n",
            "fn = lambda module, args, output: kept.append(output.detach())\n",
            id="store without the graph",
        ),
        pytest.param(
            edits.read_the_gradient,
            "fn = lambda p: log.append(p.norm())\n",
            "fn = lambda p: log.append(p.grad.norm())\n",
            id="read the gradient",
        ),
        pytest.param(
            edits.take_the_whole_output,
            "def fn(module, args, output):\n    return (output[0] + v,) + output[1:]\n",
            "def fn(module, args, output):\n    return output + v\n",
            id="take the whole output",
        ),
        pytest.param(
            edits.return_none,
            "fn = lambda module, args, output: kept.pop(0)\n",
            "fn = lambda module, args, output: (kept.pop(0), None)[1]\n",
            id="return None from a lambda",
        ),
        pytest.param(
            edits.return_none,
            "def fn(module, args, output):\n    return kept.pop(0)\n",
            "def fn(module, args, output):\n    kept.pop(0)\n",
            id="return None",
        ),
        pytest.param(
            edits.insert_at_the_front,
            "fn = lambda grad: kept.append(grad.norm())\n",
            "fn = lambda grad: kept.insert(0, grad.norm())\n",
            id="insert at the front",
        ),
        pytest.param(
            edits.bind_now,
            "fn = lambda module, args, output: kept.__setitem__(name, output)\n",
            "fn = lambda module, args, output, name=name: kept.__setitem__(name, output)\n",
            id="bind now",
        ),
        pytest.param(
            edits.return_every_argument,
            "def fn(module, args):\n    return (args[0] * 2,)\n",
            "def fn(module, args):\n    return (args[0] * 2, *args[1:])\n",
            id="return every argument",
        ),
        pytest.param(
            edits.compute_in_32_bits,
            "fn = lambda module, args, output: kept.append(output.norm())\n",
            "fn = lambda module, args, output: kept.append(output.float().norm())\n",
            id="compute in 32 bits",
        ),
        pytest.param(
            partial(edits.read_the_prefix, index=2),
            'def fn(module, state, prefix, meta):\n    state["new"] = state.pop("old")\n',
            'def fn(module, state, prefix, meta):\n    state[prefix + "new"] = state.pop(prefix + "old")\n',
            id="read the prefix",
        ),
        pytest.param(call_it, "handle.remove\n", "handle.remove()\n", id="call it"),
        pytest.param(
            partial(call_the_module, name="body"),
            "def forward(self, x):\n    return self.head.forward(self.body.forward(x))\n",
            "def forward(self, x):\n    return self.head.forward(self.body(x))\n",
            id="call the module",
        ),
        pytest.param(
            loop_over_a_copy,
            "for h in handles:\n    h.remove()\n    handles.remove(h)\n",
            "for h in list(handles):\n    h.remove()\n    handles.remove(h)\n",
            id="loop over a copy",
        ),
    ],
)
def test_an_edit(tmp_path: Path, edit: Edit, before: str, after: str):
    assert patched(tmp_path, before, edit) == after


def test_the_registration_changes_too(tmp_path: Path):
    text = "def fn(module, args, output):\n    kept.append(args[0])\nmodule.register_forward_hook(fn)\n"
    edit = partial(edits.read_keyword_arguments, names={0: "x"})
    assert patched(tmp_path, text, edit, register="register_forward_hook") == (
        'def fn(module, args, kwargs, output):\n    kept.append(kwargs["x"])\n'
        "module.register_forward_hook(fn, with_kwargs=True)\n"
    )
    text = "def fn(grad):\n    log(p.grad)\np.register_hook(fn)\n"
    assert "p.register_post_accumulate_grad_hook(fn)" in patched(tmp_path, text, edits.after_accumulation)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            partial(edits.read_the_prefix, index=2),
            "def fn(m, s, prefix, meta):\n    s[name()] = s.pop('a')\n",
        ),
        (
            partial(edits.read_keyword_arguments, names={0: "x"}),
            "def fn(m, a):\n    use(*a)\nm.register_hook(fn)\n",
        ),
        (edits.after_accumulation, "def fn(grad):\n    log(p.grad, grad)\np.register_hook(fn)\n"),
        (partial(edits.return_the_value, name="g", as_tuple=False), "fn = lambda grad: None\n"),
    ],
)
def test_another_form_gets_no_patch(tmp_path: Path, edit: Edit, text: str):
    assert patched(tmp_path, text, edit) == text
