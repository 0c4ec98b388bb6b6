"""Map target names in a saved state to target names on this model."""

from __future__ import annotations

from collections.abc import Mapping

from tenterhook.errors import PlanError
from tenterhook.plan import ROOT, Hook


class Renaming:
    """Rules that rename the leading parts of names. The rest of each name does not change.

    The rule `"encoder": "backbone"` renames the module `encoder` and everything inside it. A `*` matches one part of a
    name and copies it to the new name: `"blocks.*.attn": "layers.*.attention"`. The rule `"*": "model.*"` adds `model.`
    to the beginning of every name. Only the first matching rule applies. The root keeps its name.
    """

    def __init__(self, rules: Mapping[str, str] | None) -> None:
        if not isinstance(rules, Mapping | None):
            raise PlanError(f"rename={rules!r} is not a mapping", remedy='write rename={"encoder": "backbone"}')
        self._rules = [(_cut(old), _cut(new)) for old, new in (rules or {}).items()]
        for old, new in self._rules:
            if old.count("*") != new.count("*"):
                raise PlanError(
                    f"cannot rename {'.'.join(old)!r} to {'.'.join(new)!r}: "
                    "the two names contain different numbers of '*'",
                    remedy='write the same number of * in both: {"blocks.*.attn": "layers.*.attention"}',
                )
            if len(old) > 1 and len(new) > 1 and old[-1] == new[-1] == "*":
                old.pop()  # "encoder.*" has the same effect as "encoder", because the rest of a name does not change
                new.pop()

    def __bool__(self) -> bool:
        return bool(self._rules)

    def __call__(self, name: str) -> str:
        path, colon, tap = name.partition(":")
        if path in ("", ROOT):  # the root or one of its taps
            return name
        parts = path.split(".")
        for old, new in self._rules:
            if len(parts) < len(old) or not all(o in ("*", p) for o, p in zip(old, parts)):
                continue
            carried = iter(p for o, p in zip(old, parts) if o == "*")
            begun = [next(carried) if part == "*" else part for part in new]
            return ".".join([*begun, *parts[len(old) :]]) + colon + tap
        return name

    def hook(self, hook: Hook) -> Hook:
        """Return the hook with the rules applied to its patterns."""
        if not self._rules or hook.point.on == ("optimizer",):
            return hook
        return Hook(
            hook.id,
            on=tuple(self._pattern(p) for p in hook.selector.patterns),
            at=hook.at,
            do=hook.do,
            when=hook.when,
            expect=hook.expect,
            on_error=hook.on_error,
        )

    def _pattern(self, pattern: str) -> str:
        bare = pattern.removeprefix("!")
        return pattern if bare.startswith("type:") else pattern[: len(pattern) - len(bare)] + self(bare)


def _cut(name: str) -> list[str]:
    parts = name.split(".") if isinstance(name, str) and ":" not in name else [""]
    if not all(parts) or any("*" in part and part != "*" for part in parts):
        raise PlanError(f"rename: {name!r} is not a name", remedy='write * for a whole part: "blocks.*.attn"')
    return parts
