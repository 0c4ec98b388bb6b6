"""Renaming replaces whole parts at the start of a name, carries stars over, and treats patterns like names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenterhook as th
from tenterhook.rig.saved.renaming import Renaming

QUICK = settings(max_examples=100, deadline=None, database=None)

PART = st.sampled_from(["a", "b", "c", "net", "0", "1", "weight"])
PATH = st.lists(PART, min_size=1, max_size=5).map(tuple)
TAP = st.sampled_from(["", ":probs", ":a.b", ":a:b"])


def begins(path: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
    return path[: len(prefix)] == prefix


def free(prefixes: list[tuple[str, ...]]) -> bool:
    """Return True if no prefix begins with another."""
    return not any(i != j and begins(a, b) for i, a in enumerate(prefixes) for j, b in enumerate(prefixes))


RULES = st.lists(st.tuples(PATH, PATH), max_size=3).filter(
    lambda rules: free([old for old, _ in rules]) and free([new for _, new in rules])
)


def written(rules: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, str]:
    return {".".join(old): ".".join(new) for old, new in rules}


# -- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        ({"encoder": "backbone"}, "encoder", "backbone"),
        ({"encoder": "backbone"}, "encoder.0.weight", "backbone.0.weight"),
        ({"encoder": "backbone"}, "encoders.0", "encoders.0"),
        ({"encoder": "backbone"}, "my.encoder.0", "my.encoder.0"),
        ({"encoder": "backbone"}, "encoder:probs", "backbone:probs"),
        ({"encoder": "backbone"}, "encoder.0:encoder", "backbone.0:encoder"),
        ({"encoder": "backbone"}, "x:encoder.0", "x:encoder.0"),
        ({"a.b": "c"}, "a.b.d", "c.d"),
        ({"a.b": "c"}, "a", "a"),
        ({"a": "b.c"}, "a.d", "b.c.d"),
        ({"a": "a.b"}, "a.b", "a.b.b"),
        ({"blocks.*.attn": "layers.*.attention"}, "blocks.3.attn.q", "layers.3.attention.q"),
        ({"blocks.*.attn": "layers.*.attention"}, "blocks.3.mlp", "blocks.3.mlp"),
        ({"a.*.*.b": "*.c.*"}, "a.1.2.b.d", "1.c.2.d"),
        ({"*": "model.*"}, "0.weight", "model.0.weight"),
        ({"*": "model.*"}, "weight", "model.weight"),
        ({"*": "model.*"}, "0:probs", "model.0:probs"),
        ({"model.*": "*"}, "model.0.weight", "0.weight"),
        ({"model.*": "*"}, "model", "model"),
        ({"encoder.*": "backbone.*"}, "encoder", "backbone"),
        ({"encoder.*": "backbone.*"}, "encoder.0.weight", "backbone.0.weight"),
        ({"a.*.*": "b.*.*"}, "a.1", "b.1"),
        ({"a.0": "x", "a": "y"}, "a.0.w", "x.w"),
        ({"a.0": "x", "a": "y"}, "a.1.w", "y.1.w"),
        ({"a": "y", "a.0": "x"}, "a.0.w", "y.0.w"),
        ({"a": "b", "b": "c"}, "a", "b"),
        ({"*": "model.*"}, ".", "."),
        ({"*": "model.*"}, ":probs", ":probs"),
        ({}, "a.b", "a.b"),
    ],
)
def test_a_name(rules, old, new):
    assert Renaming(rules)(old) == new


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        ({"encoder": "backbone"}, "encoder.**", "backbone.**"),
        ({"encoder": "backbone"}, "encoder.*.weight", "backbone.*.weight"),
        ({"encoder": "backbone"}, "**.weight", "**.weight"),
        ({"encoder": "backbone"}, "!encoder.0", "!backbone.0"),
        ({"encoder": "backbone"}, "type:Linear", "type:Linear"),
        ({"encoder": "backbone"}, "encoder.*:probs", "backbone.*:probs"),
        ({"*": "model.*"}, "**", "model.**"),
        ({"*": "model.*"}, "!**.bias", "!model.**.bias"),
        ({"*": "model.*"}, ".", "."),
        ({"*": "model.*"}, "!type:torch.nn.Linear", "!type:torch.nn.Linear"),
        ({"*": "model.*"}, ":probs", ":probs"),
        ({"*": "model.*"}, "*:probs", "model.*:probs"),
        ({"blocks.*.attn": "layers.*.attention"}, "blocks.*.attn", "layers.*.attention"),
        ({"blocks.*.attn": "layers.*.attention"}, "blocks.1*.attn.q", "layers.1*.attention.q"),
    ],
)
def test_a_pattern(rules, old, new):
    hook = th.Hook("h", on=(old, "kept"), at="value", do=th.stats(), when=th.When(every=3), on_error="raise")
    assert Renaming(rules).hook(hook).on == (new, Renaming(rules)("kept"))


def test_all_else_of_a_hook_is_kept():
    hook = th.Hook(
        "h", on="encoder.*", at="grad", do=th.scale(2.0), when=th.When(every=3, stop=9), expect=4, on_error="mute"
    )
    assert Renaming({"encoder": "backbone"}).hook(hook) == th.Hook(
        "h", on="backbone.*", at="grad", do=th.scale(2.0), when=th.When(every=3, stop=9), expect=4, on_error="mute"
    )
    assert Renaming(None).hook(hook) is hook and not Renaming(None) and Renaming({"a": "b"})


@pytest.mark.parametrize("on", ["optimizer", "**", ("optimizer.*", "!optimizer.0")])
def test_an_optimizer_does_not_move_with_the_model(on):
    hook = th.Hook("h", on=on, at="step_post", do=th.Action("mine"))
    assert Renaming({"*": "model.*"}).hook(hook).on == hook.on


# -- properties -------------------------------------------------------------------------------------------------------


@QUICK
@given(RULES, PATH, TAP)
def test_there_and_back(rules, path, tap):
    there, back = Renaming(written(rules)), Renaming({new: old for old, new in written(rules).items()})
    name = ".".join(path) + tap
    if any(begins(path, old) for old, _ in rules) or not any(begins(path, new) for _, new in rules):
        assert back(there(name)) == name


@QUICK
@given(RULES, PATH, TAP)
def test_only_what_a_rule_names_is_renamed(rules, path, tap):
    name, found = ".".join(path) + tap, [(old, new) for old, new in rules if begins(path, old)]
    renamed = Renaming(written(rules))(name)
    if not found:
        assert renamed == name
    else:
        ((old, new),) = found
        assert renamed == ".".join([*new, *path[len(old) :]]) + tap


PATTERN = st.lists(st.sampled_from(["a", "b", "*", "**", "0", "n*"]), min_size=1, max_size=4).map(tuple)


@QUICK
@given(PATH, PATH, TAP, PATTERN)
def test_down_and_up_some_levels(path, levels, tap, parts):
    down, up = Renaming({"*": ".".join([*levels, "*"])}), Renaming({".".join([*levels, "*"]): "*"})
    name = ".".join(path) + tap
    assert down(name) == ".".join([*levels, *path]) + tap
    assert up(down(name)) == name
    before = th.Hook("h", on=".".join(parts), at="grad", do=th.stats())
    assert before.selector.matches(name) == down.hook(before).selector.matches(down(name))
    assert up.hook(down.hook(before)) == before


@QUICK
@given(RULES, PATTERN, PATH)
def test_a_renamed_pattern_selects_the_renamed_names(rules, parts, path):
    """Check that a renamed pattern selects the renamed targets, if a rule matches the start of the pattern."""
    pattern, name = ".".join(parts), ".".join(path)
    renaming = Renaming(written(rules))
    before = th.Hook("h", on=pattern, at="grad", do=th.stats())
    after = renaming.hook(before)
    applies = any(begins(parts, old) for old, _ in rules)
    if applies and any(begins(path, old) and begins(parts, old) for old, _ in rules):
        assert before.selector.matches(name) == after.selector.matches(renaming(name))
    if not applies:
        assert after.on == before.on


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "**", "a.**", "a*", "a.b*.c"])
@pytest.mark.parametrize("side", ["old", "new"])
def test_what_is_not_a_name(name, side):
    with pytest.raises(th.PlanError) as error:
        Renaming({name: "a"} if side == "old" else {"a": name})
    assert str(error.value) == (
        f"rename: {name!r} is not a name\n  remedy: write * for a whole part: \"blocks.*.attn\""
    )  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [("a.*", "b"), ("a", "b.*"), ("a.*.b", "*.*.c"), ("a.*.*", "b.*")])
def test_stars_that_do_not_pair(old, new):
    with pytest.raises(th.PlanError) as error:
        Renaming({old: new})
    assert str(error.value) == (
        f"cannot rename {old!r} to {new!r}: the two names contain different numbers of '*'\n"
        '  remedy: write the same number of * in both: {"blocks.*.attn": "layers.*.attention"}'
    )


@pytest.mark.parametrize("rules", [{"a:x": "b:x"}, {"a": "b:x"}, {":x": ":y"}])
def test_a_rule_for_a_tap_is_refused_as_it_would_do_nothing(rules):
    with pytest.raises(th.PlanError):
        Renaming(rules)
