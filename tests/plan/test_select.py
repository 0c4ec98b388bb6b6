import sys
from functools import cache
from itertools import product

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tenterhook.errors import PlanError
from tenterhook.plan import ROOT, Selector
from tenterhook.plan.select import MAX_PATTERN_LENGTH, MAX_PATTERNS, Glob

LINEAR = ("torch.nn.modules.linear.Linear", "torch.nn.modules.module.Module", "builtins.object")


def matches(on: str | list[str], name: str, types: tuple[str, ...] = ()) -> bool:
    return Selector((on,) if isinstance(on, str) else tuple(on)).matches(name, types)


def refusal(*patterns: str) -> str:
    with pytest.raises(PlanError) as raised:
        Selector(patterns)
    return str(raised.value)


def by_definition(pattern: str, name: str) -> bool:
    """Match by the definition of the grammar: try every length for every star."""

    def stops(n: int) -> list[int]:
        return [i for i in range(n, len(name)) if name[i] in ".:"]

    @cache
    def rest(p: int, n: int) -> bool:
        if p == len(pattern):
            return n == len(name)
        begins_a_part = p == 0 or pattern[p - 1] in ".:"
        if begins_a_part and pattern.startswith("**.", p):
            return rest(p + 3, n) or any(rest(p + 3, stop + 1) for stop in stops(n))
        if pattern.startswith("**", p):
            return any(rest(p + 2, to) for to in range(n, len(name) + 1))
        if pattern[p] == "*":
            end = (stops(n) or [len(name)])[0]
            return any(rest(p + 1, to) for to in range(n, end + 1))
        return n < len(name) and pattern[p] == name[n] and rest(p + 1, n + 1)

    return rest(0, 0)


names = st.text("ab.:", min_size=1, max_size=12).filter(lambda n: n != ROOT)
patterns = (
    st.lists(st.sampled_from(["a", "b", ".", ":", "*", "**", "**.", ".**", ".*"]), min_size=1, max_size=10)
    .map("".join)
    .filter(lambda p: "***" not in p)
)


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("head", "head"),
        ("blocks.3:probs", "blocks.3:probs"),
        (".", "."),
        ("*", "head"),
        ("blocks.*", "blocks.0"),
        ("blocks.*.attn", "blocks.11.attn"),
        ("*.weight", "head.weight"),
        ("a*c", "abc"),
        ("a*c", "ac"),
        ("a*b*c", "a1b2b3c"),
        ("**", "head"),
        ("**", "blocks.0.attn.q"),
        ("**", "blocks.3:probs"),
        ("**.attn", "attn"),
        ("**.attn", "a.attn"),
        ("**.attn", "a.b.attn"),
        ("a.**", "a.b"),
        ("a.**", "a.b.c"),
        ("a.**.b", "a.b"),
        ("a.**.b", "a.x.b"),
        ("a.**.b", "a.x.y.b"),
        ("a.**.b", "a.b.b"),
        ("**.a.**.b", "x.a.b"),
        ("**.*.weight", "x.y.weight"),
        ("a**z", "a.b.z"),
        ("layer**.weight", "layer.weight"),
        ("layer**.weight", "layer1.weight"),
        ("layer**.weight", "layer1.0.weight"),
        ("blocks.*:probs", "blocks.3:probs"),
        ("**:probs", "blocks.3:probs"),
        ("**:probs", ":probs"),
        ("blocks.3:*", "blocks.3:probs"),
        ("*:*", "head:probs"),
    ],
)
def test_it_matches(pattern, name):
    assert matches(pattern, name)


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("head", "heads"),
        ("head", "a.head"),
        ("head", "Head"),
        ("blocks.3", "blocks.3:probs"),
        ("*", "a.b"),
        ("*", "head:probs"),
        ("blocks.*", "blocks"),
        ("blocks.*", "blocks.0.attn"),
        ("blocks.*.attn", "blocks.0.x.attn"),
        ("blocks.*", "blocks:probs"),
        ("*.weight", "weight"),
        ("*.weight", "a.b.weight"),
        ("ab*ba", "aba"),
        ("a*c", "a.c"),
        ("a*c", "a:c"),
        ("**.attn", "xattn"),
        ("**.attn", "a.xattn"),
        ("**.attn", "attn.x"),
        ("a.**", "a"),
        ("a.**", "ab.c"),
        ("a.**", "x.a.b"),
        ("a.**.b", "a.xb"),
        ("a.**.b", "a.b.x"),
        ("a.**.b", "b"),
        ("**:probs", "probs"),
        ("**:probs", "blocks.3:other"),
        ("a.**:probs", "a:probs"),
        ("blocks.[03]", "blocks.0"),
        ("blocks.?", "blocks.0"),
        ("block.", "blocks"),
    ],
)
def test_it_does_not_match(pattern, name):
    assert not matches(pattern, name)


@pytest.mark.parametrize("pattern", ["*", "**", "**.*", "*.*", "*.", ".*", "**.**"])
def test_no_glob_matches_the_root(pattern):
    assert not matches(pattern, ROOT)


def test_the_root_is_taken_by_name():
    assert matches(["**", "."], ROOT)
    assert not matches(["**", ".", "!."], ROOT)


def test_the_root_has_a_type():
    assert matches("type:Linear", ROOT, LINEAR)


def test_a_list_is_a_union():
    on = ["head", "blocks.*.attn"]
    assert [matches(on, n) for n in ("head", "blocks.0.attn", "blocks.0")] == [True, True, False]


@pytest.mark.parametrize("on", [["**", "!*.bias"], ["!*.bias", "**"]])
def test_a_leading_mark_takes_away_wherever_it_stands(on):
    assert matches(on, "head.weight")
    assert not matches(on, "head.bias")


def test_what_was_taken_away_stays_away():
    assert not matches(["!head.bias", "**", "head.bias"], "head.bias")


def test_a_type_can_be_taken_away():
    assert not matches(["**", "!type:Linear"], "head", LINEAR)
    assert matches(["**", "!type:Conv2d"], "head", LINEAR)


@pytest.mark.parametrize(
    "pattern", ["type:Linear", "type:torch.nn.Linear", f"type:{LINEAR[0]}", "type:Module", "type:object"]
)
def test_a_type_is_named_anywhere_along_the_mro(pattern):
    assert matches(pattern, "head", LINEAR)


@pytest.mark.parametrize(
    "pattern",
    [
        "type:linear",
        "type:Lin",
        "type:inear",
        "type:nn.Linear",
        "type:torch.n.Linear",
        "type:torc.Linear",
        "type:modules.Linear",
    ],
)
def test_a_type_is_compared_part_by_part_from_the_left(pattern):
    assert not matches(pattern, "head", LINEAR)


def test_a_type_is_not_a_name():
    assert not matches("type:head", "head")
    assert not matches("type:head", "type:head")


def test_exact_lists_the_plain_names_only():
    assert Selector(("head", "blocks.*", "type:Linear", ".", "!tail")).exact == ("head", ".")


EMPTY = 'write "**" for everything, or a name; the root module is ".", at points of modules such as output'


@pytest.mark.parametrize(
    "given_patterns, text",
    [
        ((), "the selector is empty\n  remedy: name a target, or write \"**\" for all targets"),
        (("",), f"the selector has an empty pattern\n  remedy: {EMPTY}"),
        (("a", "!"), f"the selector has an empty pattern\n  remedy: {EMPTY}"),
        (("!a", "!b"), "the selector ['!a', '!b'] only excludes targets\n"
         "  remedy: add a pattern that includes targets, such as \"**\""),
        (("a.***",), "the pattern 'a.***' has three stars in a row\n  remedy: use * or **"),
        (("a\n",), "the pattern 'a\\n' contains a nonprintable character"),
        (("type:",), "the pattern 'type:' does not have the form type:Name\n  remedy: write \"type:Linear\""),
        (("type:Lin*",), "the pattern 'type:Lin*' does not have the form type:Name\n  remedy: write \"type:Linear\""),
        (("a" * 257,), "a pattern has 257 characters; the limit is 256"),
        (("a",) * 1025, "the selector has 1025 patterns; the limit is 1024"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_selector_says_so(given_patterns, text):
    assert refusal(*given_patterns) == text


def test_the_limits_themselves_are_allowed():
    longest = "a" * MAX_PATTERN_LENGTH
    assert matches([longest] * MAX_PATTERNS, longest)
    assert not matches(["**", "!" + longest], longest)


@settings(max_examples=500, deadline=None, database=None)
@given(patterns, names)
@example("a.**.b", "a.b")
@example("a**.b", "a.b")
@example("**.**.a", "b.a")
@example("*.**", "a.b")
def test_a_pattern_matches_what_the_grammar_says(pattern, name):
    assert matches(pattern, name) == by_definition(pattern, name)


def every(letters: list[str], most: int) -> list[str]:
    words = ("".join(w) for size in range(1, most + 1) for w in product(letters, repeat=size))
    return sorted({w for w in words if "***" not in w and w != ROOT})


def test_every_small_pattern_matches_every_small_name_as_the_grammar_says():
    names = every(["a", "."], 5)
    wrong = []
    for pattern in every(["a", ".", "*", "**"], 5):
        selector = Selector((pattern,))
        wrong += [(pattern, n) for n in names if selector.matches(n) != by_definition(pattern, n)]
    assert wrong == []


@settings(max_examples=200, deadline=None, database=None)
@given(patterns, st.lists(st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=5), max_size=8))
@example("a*.**.b", [["a", "b", "a"], ["a", "b", "b"], ["a", "b"]])
def test_what_was_matched_before_does_not_change_a_match(pattern, parts):
    selector = Selector((pattern,))
    for name in [".".join(p) for p in parts] * 2:
        assert selector.matches(name) == by_definition(pattern, name)


part = st.text("ab", min_size=1, max_size=3)
pieces = st.one_of(
    part.map(lambda p: (p, p)),
    part.map(lambda p: ("*", p)),
    st.tuples(part, part).map(lambda ab: (f"{ab[0]}*", "".join(ab))),
    st.lists(part, max_size=3).map(lambda parts: ("**", ".".join(parts))),
)


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(pieces, min_size=1, max_size=5), part)
def test_a_name_spelled_out_from_a_pattern_matches_it(spelled, last):
    pattern = ".".join([*(p for p, _ in spelled), last])
    name = ".".join([*(n for _, n in spelled if n), last])
    assert matches(pattern, name)
    assert not matches(pattern, name + "c")


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(patterns, min_size=1, max_size=3), st.lists(patterns, max_size=3), names)
def test_a_selector_is_the_union_less_what_is_taken_away(take, leave, name):
    meant = any(by_definition(p, name) for p in take) and not any(by_definition(p, name) for p in leave)
    assert matches([*take, *(f"!{p}" for p in leave)], name) == meant


@settings(max_examples=150, deadline=None, database=None)
@given(patterns, names)
def test_a_match_looks_at_no_character_twice(pattern, name):
    assume("*" in pattern)
    glob = Glob(pattern)
    glob.matches(name)
    assert glob.steps <= len(name)


ADVERSARIAL = [
    ("*a*a*a*b", "a" * 3999 + "b", True),
    ("*a*a*a*b", "a" * 3998 + ".b", False),
    ("*a" * 2000 + "*b", "a" * 1999 + "b", False),
    ("*a" * 2000 + "*b", "a" * 3999 + "b", True),
    ("*.*a*a*.*b", "a." * 1999 + "ab", False),
    ("**a" * 80 + "*b", "a." * 1999 + "ab", True),
    ("**a" * 80 + "**b", "a." * 1999 + "ab", True),
    ("**.a." * 50 + "*b", "a." * 1999 + "xb", True),
    ("**.a." * 50 + "x.*b", "a." * 1999 + "xb", False),
    ("**." * 80 + "b", "a." * 1999 + "xb", False),
    ("**.*." * 50 + "b", "a." * 1999 + "b", True),
]


@pytest.mark.parametrize("pattern, name, matched", ADVERSARIAL)
def test_an_adversarial_pattern_takes_at_most_one_step_for_each_character(pattern, name, matched):
    glob = Glob(pattern)
    assert glob.matches(name) is matched
    assert glob.steps <= len(name)


def test_every_character_looked_at_is_a_step():
    glob = Glob("*a*a*a*b")
    glob.matches("a" * 3999 + "b")
    assert glob.steps == 4000


def test_steps_are_counted_anew_for_each_match():
    glob = Glob("*b")
    for _ in range(2):
        glob.matches("aab")
        assert glob.steps == 3
    glob.matches("x")
    assert glob.steps == 0


def lines_run(pattern: str, name: str) -> int:
    """Count the lines of code that a match runs, independently of `Glob.steps`."""
    glob = Glob(pattern)
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        glob.matches(name)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("pattern", dict.fromkeys(p for p, _, _ in ADVERSARIAL if len(p) <= MAX_PATTERN_LENGTH))
@pytest.mark.parametrize("letter", ["a", "a.", "."])
def test_the_work_grows_no_faster_than_the_name(pattern, letter):
    short, long = (lines_run(pattern, letter * n + "b") for n in (500, 2000))
    assert long <= 4 * short
