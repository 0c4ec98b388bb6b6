"""Implement the rules for hooks on parameters, modules, models and optimizers that were replaced."""

from __future__ import annotations

from tenterhook.doctor.observe.hook_kinds import BACKWARD, FORWARD, STEP, TENSOR
from tenterhook.doctor.observe.hook_record import HookRecord
from tenterhook.doctor.observe.timeline import Timeline
from tenterhook.doctor.patch.recording import Recording
from tenterhook.doctor.rules.registry import SilentSites, Words, plural, rule, with_article
from tenterhook.doctor.rules.silent.never_fired import ran


@rule("TH205")
def parameter_replaced(hook: HookRecord, timeline: Timeline | None = None) -> Words | None:
    """Report a hook on a parameter that was replaced; with a timeline, one that fired before that."""
    name = hook.owner.name
    if timeline is not None:
        since = timeline.backwards - hook.last.backwards if hook.last is not None else 0
        there = hook.owner.now() is not None and hook.removed is None and hook.owner.group is None
        if since <= 0 or not there or not hook.owner.replaced:
            return None
        return Words(
            f"{name!r} is now a different parameter object, which does not have the hook; the backward pass ran "
            f"{plural(since, 'time')} since the hook last fired",
            f'th.hook(model, fn, on="{name}", at="grad")  # selects by name and follows replacements',
        )
    last = hook.missed_backwards[-1]
    if last.frozen and (wrapper := _wrapper_of(hook)):
        module = name.rpartition(".")[0]
        return Words(
            f"{ran(hook)}; {module!r} is now {with_article(wrapper)}, which keeps the hooked parameter frozen and "
            "trains another one",
            f'th.hook(model, fn, on="{module}.**", at="grad")  # hooks the parameters that are trained',
        )
    if last.sharded:
        return Words(
            f"{ran(hook)}; fully_shard or parallelize_module replaced {name!r} with a DTensor, "
            "which does not have the hook",
            f'th.hook(model, fn, on="{name}", at="grad_final", optimizer=optimizer)  # selects by name\n'
            "p.register_post_accumulate_grad_hook(fn)  # or register the hook after fully_shard(model)",
        )
    if last.replaced:
        return Words(
            f"{ran(hook)}; {name!r} is now a different parameter object, which does not have the hook",
            f'th.hook(model, fn, on="{name}", at="grad")  # selects by name and follows replacements',
        )
    return None


def _wrapper_of(hook: HookRecord) -> str | None:
    """Return the class of the module that took the name of the hooked parameter's module and contains it, or None."""
    place = hook.owner.place
    root, module = (place.root(), place.module()) if place is not None else (None, None)
    if place is None or root is None or module is None:
        return None
    present = dict(root.named_modules()).get(place.name.rpartition(".")[0])
    inside = present is not None and present is not module and any(one is module for one in present.modules())
    return type(present).__name__ if inside else None


@rule("TH206")
def another_model_ran(about: HookRecord | SilentSites, model: str, steps: int = 0, calls: int = 0) -> Words:
    """Report another model object. `calls` counts its calls since the hook last fired."""
    if isinstance(about, SilentSites):
        return Words(
            f"{about.evidence}; this model ran no forward pass in {plural(steps, 'step')}",
            "rig = th.attach(model, plan, optimizer=optimizer)  # attach to the model that is trained",
        )
    if calls:
        return Words(
            f"after the hook last fired, a different {model} object, such as a copy, ran {plural(calls, 'time')}, and "
            "the hooked model did not run",
            f"model.{about.kind}(fn)  # register the hook on the model that runs"
            if about.kind in FORWARD
            else f'model.get_parameter("{about.owner.name}").{about.kind}(fn)  # on the model that runs',
            as_note=True,
        )
    point = "grad" if about.kind in TENSOR else "output" if about.kind in FORWARD else "grad_output"
    return Words(
        f"the loss was computed by a different {model} object; the graph contained no parameter of the hooked model",
        f'th.hook(model, fn, on="{about.owner.name}", at="{point}")  # hook the model that computes the loss',
    )


@rule("TH227")
def module_replaced(hook: HookRecord, timeline: Timeline) -> Words | None:
    """Report a hook on a module that is no longer a part of its model, although the model has run since."""
    place = hook.owner.place
    root = place.root() if place is not None and hook.kind in (*FORWARD, *BACKWARD) else None
    if place is None or root is None or hook.removed is not None or place.name == ".":
        return None
    last, now = hook.last or hook.born, timeline.now()
    passes = max(now.passes - last.passes, now.backwards - last.backwards)
    module = place.module()
    # A wrapper such as DDP changes the names of modules, so the module itself is searched.
    if not passes or (module is not None and any(one is module for one in root.modules())):
        return None
    present = dict(root.named_modules()).get(place.name)
    fate = "is no longer there" if present is None else f"is now a different {type(present).__name__}, without the hook"
    return Words(
        f"{place.name!r} {fate}; the model ran {plural(passes, 'time')} since the hook last fired"
        if hook.fired
        else f"{place.name!r} {fate}; the model ran {plural(passes, 'time')}",
        f'model.get_submodule("{place.name}").{hook.kind}(fn)  # register the hook again after the replacement',
    )


@rule("TH228")
def optimizer_replaced(hook: HookRecord, seen: Recording) -> Words | None:
    """Report a hook on an optimizer whose parameters are now stepped by another optimizer."""
    uses = seen.events.optimizers
    mine = uses.get(hook.owner.id)
    if mine is None or hook.kind not in STEP or hook.removed is not None:
        return None
    hooked = {one.owner.id for one in seen.hooks if one.kind == hook.kind and one.code is hook.code}
    others = [one for id, one in uses.items() if id not in hooked and one.parameters & mine.parameters]
    later = [one for one in others if one.first > mine.last]
    if not later:
        return None
    return Words(
        f"the {hook.owner.kind} with the hook took {plural(mine.steps, 'step')}; then another {later[-1].kind}, which "
        f"does not have the hook, took {plural(sum(one.steps for one in later), 'step')} with the same parameters",
        f"optimizer.{hook.kind}(fn)  # on the new optimizer, too",
    )
