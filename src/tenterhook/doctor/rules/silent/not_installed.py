"""Implement the TH1xx rules: a hook was not installed, or was installed in the wrong place."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from tenterhook import torch_internals as private
from tenterhook.doctor.findings import Finding
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.reading.registration_loops import RegistrationLoop, registration_loops
from tenterhook.doctor.rules.registry import Subject, Words, found, plural, quoting, rule

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
def nothing_hooked(about: Subject, backwards: int, steps: int, loop: RegistrationLoop | None = None) -> Words:
    if loop is not None:
        listed = "named_parameters" if "parameters" in loop.over else "named_modules"
        return Words(
            f"the loop over {loop.over}() registered no hook, because nothing passed the test {loop.test!r}",
            f"print([name for name, _ in model.{listed}()])  # the names, which may begin with a prefix",
        )
    return Words(
        f"the backward pass ran {plural(backwards, 'time')} and the optimizer made {plural(steps, 'step')}, but no "
        "hook was registered",
        'th.hook(model, fn, on="layer*", at="grad")  # raises an error if no name matches',
    )


@rule("TH113")
def only_a_part(hook: HookRecord, loop: RegistrationLoop, covered: int, left_out: dict[str, str]) -> Words:
    kinds = ", ".join(sorted(set(left_out.values())))
    return Words(
        f"the test {loop.test!r} selected {plural(covered, 'module')}; most weights are in other modules, such as "
        f"{next(iter(left_out))!r} ({kinds})",
        "print({type(m).__name__ for m in model.modules()})  # the classes that the test has to name",
    )


def selections(seen: Recording) -> Iterator[Finding]:
    """Find the loops that registered no hook, or whose test leaves out most weights of the model."""
    timeline = seen.events.timeline
    ran = timeline.passes + timeline.backwards > 0 and seen.failure is None
    for loop in (loop for file in sorted(seen.program_files) for loop in registration_loops(file)):
        hooks = [hook for hook in seen.hooks if loop.contains(hook.caller.place)]
        if not hooks and ran:
            yield from found(nothing_hooked(Subject(place=loop.place), timeline.backwards, timeline.steps, loop))
        elif hooks and loop.by_class and (left_out := _left_out(hooks)):
            yield from found(only_a_part(hooks[0], loop, len({hook.owner.id for hook in hooks}), left_out))


def _left_out(hooks: list[HookRecord]) -> dict[str, str]:
    """Return the classes of the modules without a hook, by name, if they contain most weights of the model."""
    place = hooks[0].owner.place
    root = place.root() if place is not None else None
    hooked = {id(part) for hook in hooks if isinstance(one := hook.owner.now(), nn.Module) for part in one.modules()}
    found: dict[str, str] = {}
    sizes = {True: 0, False: 0}
    for name, module in root.named_modules() if root is not None and hooked else ():
        weights = [p for p in private.own_parameters(module).values() if p is not None and p.dim() > 1]
        sizes[id(module) in hooked] += sum(p.numel() for p in weights)
        if weights and id(module) not in hooked and not isinstance(module, nn.Embedding):
            found[name] = type(module).__name__
    return found if sizes[False] > sizes[True] > 0 else {}
