"""Implement the rules for hooks that misread or damage the values that they receive."""

from __future__ import annotations

import inspect
from functools import partial

from torch import nn

from tenterhook.doctor.edits import hook_functions as edits
from tenterhook.doctor.observe.hook_kinds import FORWARD, SAVING, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.rules.registry import Words, plural, rule


@rule("TH524")
def without_keyword_arguments(hook: HookRecord) -> Words | None:
    if hook.empty_inputs and (hook.returned or hook.reads_argument(1)):
        return Words(
            f"in {plural(hook.empty_inputs, 'firing')}, grad_input was empty, because the module was called with "
            "keyword arguments only; a backward hook sees positional inputs, and PyTorch ignores what it returns then",
            "def fn(module, args, kwargs):\n    kwargs['hidden_states'].register_hook(lambda grad: grad * 0)\n\n"
            f"{FORWARD[0]}(fn, with_kwargs=True)  # hook the input itself",
        )
    if not hook.lacks_kwargs or hook.reading is None or not hook.reads_argument(1):
        return None
    names = ", ".join(sorted(hook.lacks_kwargs))
    register = f"module.{hook.kind}(fn, with_kwargs=True)"
    signature = "fn(module, args, kwargs)" if hook.kind == FORWARD[0] else "fn(module, args, kwargs, output)"
    return Words(
        f"the module was called with keyword arguments only ({names}); the hook reads its second argument, which is "
        "then empty",
        f"{register}  # PyTorch then calls {signature}",
        edit=partial(edits.read_keyword_arguments, names=_names_by_index(hook)),
    )


def _names_by_index(hook: HookRecord) -> dict[int, str]:
    """Return the names of the module's arguments that it was called with by keyword."""
    module = hook.owner.now()
    parameters = inspect.signature(module.forward).parameters if isinstance(module, nn.Module) else {}
    return {index: name for index, name in enumerate(parameters) if name in hook.lacks_kwargs}


@rule("TH525")
def parameter_for_its_gradient(hook: HookRecord) -> Words | None:
    if hook.kind != TENSOR[1] or not hook.fired or hook.reads_parameter is None:
        return None
    if "." not in hook.reads_parameter:
        return Words(
            f"the hook uses its argument {hook.reads_parameter!r} as a gradient; PyTorch passes the parameter, and its "
            "gradient is in .grad",
            f"{hook.reads_parameter} = parameter.grad  # in the hook, whose argument is the parameter",
        )
    return Words(
        f"the hook reads {hook.reads_parameter}; PyTorch passes the parameter, and its gradient is in .grad",
        f"{hook.reads_parameter.partition('.')[0]}.grad{hook.reads_parameter[hook.reads_parameter.index('.') :]}",
        edit=edits.read_the_gradient,
    )


@rule("TH528")
def ignores_the_prefix(hook: HookRecord) -> Words | None:
    if not hook.prefix or not hook.ignores_prefix:
        return None
    if "load" in hook.kind and hook.texts and not hook.names_keys:
        return Words(
            f"the module is inside another one, so the hook receives only the keys that begin with {hook.prefix!r}; "
            "none of them contains a text that the hook looks for",
            f"model.{hook.kind}(fn)  # on the model whose load_state_dict() is called",
        )
    return Words(
        f"the module is inside another one, so its keys begin with {hook.prefix!r}; the hook does not read the prefix "
        "that PyTorch passes",
        'state_dict[prefix + "new"] = state_dict.pop(prefix + "old")',
        edit=partial(edits.read_the_prefix, index=hook.prefix_index),
    )


@rule("TH529")
def changes_the_data(hook: HookRecord) -> Words | None:
    if hook.input_changed:
        return Words(
            f"in {plural(hook.input_changed, 'firing')}, the hook changed the output in place, and the output is also "
            "the input of the module, as in Identity, or in Dropout in evaluation mode; other users of the input see "
            "the change",
            "return output + vector  # a new tensor instead of output.add_(vector)",
            edit=partial(edits.change_a_copy, name=hook.reading.arguments[-1]) if hook.reading is not None else None,
        )
    if not hook.data_changed:
        return None
    if hook.kind in SAVING:
        return Words(
            f"in {plural(hook.data_changed, 'firing')}, the hook changed tensors of the state dict in place; they "
            "share their memory with the weights of the model",
            "state_dict[key] = value.clone()  # change the copy",
        )
    return Words(
        f"in {plural(hook.data_changed, 'firing')}, the hook changed its input in place; the input is a part of a "
        "larger tensor, which the program still uses",
        "x = args[0].clone()  # change the copy, and return it",
    )


@rule("TH530")
def first_sample(hook: HookRecord) -> Words | None:
    changes = hook.changed or hook.output_changed
    if hook.kind != FORWARD[1] or not hook.tensor_output or not changes or hook.first_item is None:
        return None
    return Words(
        f"the output of the module is a tensor, so {hook.first_item} is its first sample, not its first element",
        "hidden = output[0] if isinstance(output, tuple) else output",
        edit=edits.take_the_whole_output,
    )


@rule("TH536")
def changes_weights_before_each_pass(hook: HookRecord) -> Words | None:
    last = hook.last
    if len(hook.weights_changed_after) > 2:
        return Words(
            f"the pre-hook changed the parameters again after each of {len(hook.weights_changed_after)} steps, so what "
            "the steps changed is replaced, for example rounded away",
            "torch.nn.utils.parametrize.register_parametrization(module, 'weight', Quantize())  # keeps the weight",
        )
    if not hook.weights_changed or last is None or last.steps == hook.timeline.steps:
        return None
    if hook.fired == 1 and hook.removed is not None:
        return None  # it initializes the weights
    return Words(
        f"the pre-hook changed the parameters in {plural(hook.weights_changed, 'firing')}, and an optimizer step "
        "changed them again after the last one",
        "optimizer.register_step_post_hook(lambda *_: apply_mask())  # change the parameters after each step",
    )


@rule("TH550")
def written_and_computed_again(hook: HookRecord) -> Words | None:
    if hook.derived.lost_write is None:
        return None
    return Words(
        f"the program changed {hook.derived.lost_write!r} of {hook.owner.name!r}; the pre-hook computes it from other "
        "parameters before each call, so the change is lost",
        f"nn.init.orthogonal_(module.{hook.derived.lost_write})  # before weight_norm(module), for example",
    )
