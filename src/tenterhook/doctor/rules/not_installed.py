"""Rules TH1xx: a hook was not installed, or not where it was meant to be."""

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
    """`why`: how a raw hook's tensor was made; of a rig's hook, why all its targets sleep."""
    if about.by is not None:
        return Words(f"{about.by} on {about.target!r}: it {why}", "p.requires_grad_(True)  # before it is used")
    return Words(why, "p.requires_grad_(True)  # it wakes by itself")


@rule("TH104")
def in_no_optimizer(about: Subject, why: str) -> Words:
    return Words(why, "th.attach(model, plan, optimizer=...)  # the one that holds them")


@rule("TH105")
def refused(about: Subject, fact: str) -> Words:
    return Words(
        f"{about.by} on {about.target!r}: {fact}",
        "y.register_hook(fn)  # gets the whole gradient, summed over all uses",
    )


@rule("TH107")
def handle_was_loaded(about: Subject) -> Words:
    return Words("a RemovableHandle was loaded; it points at a dict that is no model's", KEPT_BY_NAME)


@rule("TH108")
def model_was_copied(hook: HookRecord, model: str | None = None) -> Words | None:
    """`model`: the class of what was copied, where the copy ran in the place of the hooked one."""
    if not hook.copies_fired:
        return None
    times = plural(hook.copies_fired, "time")
    if model is None:
        return Words(
            f"fired {plural(hook.fired, 'time')}, and on copies {times} more",
            "copied = copy.deepcopy(model)  # before hooks are put on",
            as_note=True,
        )
    return Words(
        f"a copy of the {model} ran: its hook fired {times}, this one 0",
        "copied = copy.deepcopy(model)  # before hooks are put on\n"
        f'copied.get_submodule("{hook.owner.name}").{hook.kind}(fn)',
    )


@rule("TH109")
def nothing_hooked(about: Subject, backwards: int, steps: int) -> Words:
    return Words(
        f"{plural(backwards, 'backward')} and {plural(steps, 'step')} ran, and nothing was hooked",
        'th.hook(model, fn, on="layer*", at="grad")  # a name that matches nothing is an error there',
    )
