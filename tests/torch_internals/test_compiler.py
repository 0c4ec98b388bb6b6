"""Check undocumented behaviour of torch.compile. A test fails when torch changes what tenterhook relies on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tenterhook import torch_internals as private
from tenterhook.torch_internals import compiler as dynamo
from tests.support.compiled.stack import Stack, batch, build

#: torch.compile of a block reads the .grad of its inputs
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def test_a_compiled_module_is_told():
    module = nn.Linear(1, 1)
    assert not dynamo.is_compiled(module)
    assert dynamo.is_compiled(torch.compile(module, backend="eager"))
    assert not dynamo.is_compiled_in_place(torch.compile(module, backend="eager"))
    module.compile(backend="eager")
    assert dynamo.is_compiled(module)


def test_what_runs_as_it_is_beside_compiled_code_and_is_traced_inside():
    ran = []

    @dynamo.skip_dynamo
    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if torch.compiler.is_dynamo_compiling():
            return output * 2
        ran.append(_untraceable())
        return None

    model, run = build("whole")
    bare = run(batch(0))
    model.register_forward_hook(hook)
    assert torch.equal(run(batch(0)), bare) and ran == [True]
    model.blocks[1].register_forward_hook(hook)
    torch._dynamo.reset()
    assert torch.equal(run(batch(0)), bare * 2) and ran == [True, True]


def _untraceable() -> bool:
    """Return True if plain Python called the hook, and not compiled code."""
    return sys._getframe(1).f_code.co_name == "hook"


def test_what_breaks_a_graph():
    @dynamo.breaks_graph
    def outside(x: Tensor) -> Tensor:
        assert not torch.compiler.is_compiling()
        return x

    def run(x: Tensor) -> Tensor:
        return outside(torch.tanh(x)) + 1

    assert torch.equal(torch.compile(run, backend="aot_eager")(batch(0)), torch.tanh(batch(0)) + 1)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="tenterhook supports grad_input"):
        torch._dynamo.reset()
        torch.compile(run, backend="aot_eager", fullgraph=True)(batch(0))


def test_hooks_that_come_late_are_missed_unless_they_are_looked_for():
    def missed() -> bool:
        torch._dynamo.reset()
        model, run = build("whole")
        bare = run(batch(0))
        model.blocks[0].up.register_forward_hook(lambda m, args, out: out * 0)
        return torch.equal(run(batch(0)), bare)

    assert not dynamo.checks_hooks(False)
    assert missed()
    dynamo.checks_hooks(True)
    try:
        assert not missed()
    finally:
        assert dynamo.checks_hooks(False)


def test_the_graphs_of_a_function_and_the_classes_that_they_call():
    model, run = build("whole")
    run(batch(0))
    codes = [code for code in dynamo.compiled_codes() if dynamo.graphs_of(code)]
    assert codes == [Stack.forward.__code__]
    (graph,) = dynamo.graphs_of(codes[0])
    classes = dynamo.classes_in(codes[0], dynamo.conditions_of(graph))
    assert {id(nn.Linear), id(type(model.blocks[0])), id(nn.ModuleList)} <= classes
    assert id(Stack) not in classes, "the hooks of the compiled module run outside the graph"
    dynamo.drop_graphs(codes[0])
    assert not dynamo.graphs_of(codes[0])


def test_autograd_records_again_inside_of_an_operation():
    library = torch.library.Library("dynamo_private_records", "DEF")
    library.define("double(Tensor x) -> Tensor")
    found = []

    def double(x: Tensor) -> Tensor:
        with torch.enable_grad():
            given = x.detach().requires_grad_()
            found.append((given * 2).requires_grad)
            with dynamo.recording_again():
                found.append((given * 2).requires_grad)
        return x * 2

    library.impl("double", double, "CompositeExplicitAutograd")
    torch.library.register_fake("dynamo_private_records::double", torch.empty_like, lib=library)
    torch.library.register_autograd("dynamo_private_records::double", lambda ctx, g: g * 2, lib=library)
    torch.ops.dynamo_private_records.double(torch.ones(2, requires_grad=True))
    assert found == [False, True]


def test_whether_a_backward_keeps_its_graph():
    x = torch.ones(2, requires_grad=True)
    y, kept = (x * 2).sum(), []
    y.register_hook(lambda g: kept.append(private.keeps_graph()))
    y.backward(retain_graph=True)
    y.backward()
    assert kept == [True, False]


def last_compiled() -> object:
    return next(reversed(dynamo.compilations()), None)


def test_a_frame_can_be_left_alone_and_what_it_calls_is_compiled():
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    dynamo.never_compile_itself(outer.__code__)
    torch.compiler.reset()
    before = last_compiled()
    assert torch.compile(outer, backend="eager")(torch.ones(1)).item() == 4
    assert [one.co_name for one in dynamo.compilations(before)] == ["inner"]


def test_the_compiler_can_be_swapped_for_a_while():
    def inner(x):
        return x + 1

    def outer(x):
        compiler = dynamo.swap_compiler(None)
        found.append(compiler is not None)
        x = inner(x)
        dynamo.swap_compiler(compiler)
        return inner(x)

    found: list[bool] = []
    dynamo.never_compile_itself(outer.__code__)
    torch.compiler.reset()
    before = last_compiled()
    assert torch.compile(outer, backend="eager")(torch.ones(1)).item() == 3
    assert found == [True] and [one.co_name for one in dynamo.compilations(before)] == ["inner"]
    assert dynamo.swap_compiler(None) is None


def test_dynamo_tells_which_function_it_inlines_and_its_first_argument(monkeypatch):
    owner, name = dynamo.dynamo_entries()[2]
    begin, found = getattr(owner, name), []

    def begun(*args, **kwargs):
        found.append((*dynamo.inlined(args), dynamo.is_tracing()))
        return begin(*args, **kwargs)

    def hook(module, inputs):
        return (inputs[0] + 1,)

    def other(x):
        return x * 2

    model = nn.Linear(1, 1)
    model.register_forward_pre_hook(hook)
    monkeypatch.setattr(owner, name, begun)
    torch.compiler.reset()
    torch.compile(lambda x: other(model(x)), backend="eager", fullgraph=True)(torch.ones(1))
    assert (hook.__code__, model, True) in found
    assert (other.__code__, None, True) in found
    assert not dynamo.is_tracing()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_call_is_on_the_stack_while_it_is_compiled_and_while_it_runs(in_place):
    found = []

    def backend(traced, inputs):
        found.append(dynamo.is_in_compiled_call())
        return lambda *args: [found.append(dynamo.is_in_compiled_call()), traced(*args)][1]

    torch.compiler.reset()
    model = run = Stack()
    if in_place:
        model.compile(backend=backend)
    else:
        run = torch.compile(model, backend=backend)
    for _ in range(2):
        run(batch(0))
        found.append(dynamo.is_in_compiled_call())
    assert found == [True, True, False, True, False]


def test_dynamo_is_imported_by_the_first_compilation_and_not_before():
    script = (
        "import sys, torch; from tenterhook.torch_internals import compiler as dynamo; import tenterhook as th\n"
        "with th.examine(): torch.nn.Linear(1, 1).register_forward_hook(print)\n"
        "assert not dynamo.may_compile() and 'torch._dynamo' not in sys.modules\n"
        "torch.compile(lambda x: x, backend='eager')\n"
        "assert dynamo.may_compile()"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_dynamo_tells_of_a_graph_break_and_where_it_was(monkeypatch):
    where, name = dynamo.dynamo_entries()[0]
    told, tell = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda *a, **k: (told.append(dynamo.graph_break(a, k)), tell(*a, **k))[1])

    def say(x):
        print(end="")
        return x

    torch.compiler.reset()
    torch.compile(lambda x: say(x) + 1, backend="eager")(torch.ones(1))
    reason, frames = told[0]
    assert reason == "Failed to trace builtin operator"
    file, line, function = frames[-1]
    assert (file, line, function) == (__file__, say.__code__.co_firstlineno + 1, "say")


def test_a_recompilation_says_whose_guard_failed():
    def grow(x):
        kept.append(1)
        return x + 1

    kept: list[int] = []
    torch.compiler.reset()
    before = last_compiled()
    fast = torch.compile(grow, backend="eager")
    for _ in range(10):
        fast(torch.ones(1))
    first, second, *_, last = dynamo.compilations(before)
    assert (first.co_name, first.recompile_reason, first.fail_type) == ("grow", None, None)
    assert dynamo.frames_in(second.recompile_reason)[-1] == (__file__, grow.__code__.co_firstlineno + 1, "grow")
    assert last.fail_type in ("Unsupported", "RecompileLimitExceeded")  # the second one in torch 2.10
    assert last.compile_id == first.compile_id.replace("/0", "/8")


def test_a_graph_shows_operations_that_nobody_uses(monkeypatch):
    @torch.library.custom_op("dynamo_private::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @torch.library.custom_op("dynamo_private::write", mutates_args=("y",))
    def write(x: torch.Tensor, y: torch.Tensor) -> None:
        y.copy_(x)

    look.register_fake(lambda x: x.clone())
    write.register_fake(lambda x, y: None)

    def run(x, y):
        look(x)
        write(x, y)
        return look(x + 1)

    where, name = dynamo.dynamo_entries()[1]
    unused, lower = [], getattr(where, name)
    monkeypatch.setattr(
        where, name, lambda out, g, *a, **k: (unused.extend(dynamo.unused_operations(g)), lower(out, g, *a, **k))[1]
    )
    torch.compiler.reset()
    for backend, lowered in (("eager", 0), ("aot_eager", 1)):
        before = dynamo.lowered()
        unused.clear()
        torch.compile(run, backend=backend)(torch.ones(1), torch.zeros(1))
        torch.compiler.reset()
        assert [called for called, _ in unused] == ["dynamo_private::look"]
        assert f"line {run.__code__.co_firstlineno + 1}, in run\n    look(x)" in unused[0][1]
        assert dynamo.lowered() - before == lowered


def test_a_tensor_that_compiled_code_gave_has_its_node():
    from tenterhook.doctor.patch.compiler import COMPILED_NODE

    torch.compiler.reset()
    made = torch.compile(lambda x: x * 2, backend="aot_eager")(torch.ones(2, requires_grad=True))
    assert type(made.grad_fn).__name__ == COMPILED_NODE


def test_wrapper_code_is_what_runs_when_a_compiled_model_is_called():
    model = torch.compile(nn.Linear(1, 1), backend="eager")
    code, called = dynamo.wrapper_code(), []
    assert code is not None
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, value: called.append(frame.f_code) if event == "call" else None)
    try:
        model(torch.ones(1))
    finally:
        sys.setprofile(before)
    assert code in called
