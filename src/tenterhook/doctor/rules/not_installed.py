"""Implement the TH1xx rules: a hook was not installed, or was installed in the wrong place."""

from __future__ import annotations

from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.rules.registry import Subject, Words, plural, quoting, rule

KEPT_BY_NAME = 'torch.save({"hooks": rig.state_dict()}, path)\nrig = th.restore(model, torch.load(path)["hooks"])'

selects_nothing = quoting("TH101")
wrong_plan = quoting("TH102")
no_such_function = quoting("TH106")
saved_hooks_do_not_fit = quoting("TH110")


@rule("TH103")
def frozen_target(about: Subject, why: str) -> Words:
    """Report a frozen target. `why` is the state of a raw hook's tensor, or the reason why a rig's hook is dormant."""
    if about.by is not None:
        return Words(
            f"{about.by} on {about.target!r}: the tensor {why}", "p.requires_grad_(True)  # before the forward pass"
        )
    return Words(why, "p.requires_grad_(True)  # the hook then becomes active")


@rule("TH104")
def in_no_optimizer(about: Subject, why: str) -> Words:
    return Words(why, "th.attach(model, plan, optimizer=optimizer)  # the optimizer that contains the parameters")


@rule("TH105")
def refused(about: Subject, fact: str) -> Words:
    return Words(
        f"{about.by} on {about.target!r}: {fact}",
        "y.register_hook(fn)  # receives the complete gradient, summed over all uses of y",
    )


@rule("TH107")
def handle_was_loaded(about: Subject) -> Words:
    return Words("a RemovableHandle was loaded; it refers to a dict that no model uses", KEPT_BY_NAME)


@rule("TH108")
def model_was_copied(hook: HookRecord, model: str | None = None) -> Words | None:
    """Report a copied hook. `model` is the name of the model's class if the copy ran instead of the original."""
    if not hook.copies_fired:
        return None
    times = plural(hook.copies_fired, "time")
    if model is None:
        return Words(
            f"the hook fired {plural(hook.fired, 'time')} on the original and {times} on copies",
            "copied = copy.deepcopy(model)  # before you register hooks",
            as_note=True,
        )
    return Words(
        f"a copy of the {model} object ran; the copied hook fired {times}, and this hook fired 0 times",
        "copied = copy.deepcopy(model)  # before you register hooks\n"
        f'copied.get_submodule("{hook.owner.name}").{hook.kind}(fn)',
    )


@rule("TH109")
def nothing_hooked(about: Subject, backwards: int, steps: int) -> Words:
    return Words(
        f"the backward pass ran {plural(backwards, 'time')} and the optimizer made {plural(steps, 'step')}, but no "
        "hook was registered",
        'th.hook(model, fn, on="layer*", at="grad")  # raises an error if no name matches',
    )
