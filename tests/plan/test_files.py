import functools
import hashlib
import importlib
import json
import random
import sys
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenterhook.errors import PlanError, PlanFileError
from tenterhook.plan import POINTS, Action, Hook, Plan, When
from tenterhook.plan.files import MAX_BYTES, MAX_DEPTH, MAX_INTEGER, MAX_TOML, MAX_VALUES

PLAN = Plan([
    Hook("norms", on="**", at="grad_final", do=Action("stats")),
    Hook("attn", on=["blocks.*.attn", "!blocks.0.**"], at="grad_output", do=Action("clip_value", {"max": 0.1}),
         when=When(every=10, start=5, stop=100, phase="any", after_trip=3), expect=12, on_error="mute"),
    Hook("probs", on="**:probs", at="value", do=Action("mine", {"é": [1, None, True, {"b": "x", "a": 2.5}]}), expect=0),
])  # fmt: skip

CANONICAL = (
    '{"hooks":['
    '{"at":"grad_final","do":{"stats":{}},"id":"norms","on":"**"},'
    '{"at":"grad_output","do":{"clip_value":{"max":0.1}},"expect":12,"id":"attn","on":["blocks.*.attn","!blocks.0.**"],'
    '"on_error":"mute","when":{"after_trip":3,"every":10,"phase":"any","start":5,"stop":100}},'
    '{"at":"value","do":{"mine":{"é":[1,null,true,{"a":2.5,"b":"x"}]}},"expect":0,"id":"probs","on":"**:probs"}'
    '],"tenterhook":1}'
)

TOML = """
tenterhook = 1

[[hook]]
id = "norms"
on = "**"
at = "grad_final"
do = "stats"

[[hook]]
id = "attn"
on = ["blocks.*.attn", "!blocks.0.**"]   # not the first
at = "grad_output"
do.clip_value.max = 0.1
when = {every = 10, start = 5, stop = 100, phase = "any", after_trip = 3}
expect = 12
on_error = "mute"
"""

NOT_A_PLAN = '\n  remedy: write {"tenterhook": 1, "hooks": [...]}'
IN_HOOK = "hook 'a'"


def with_param(literal: str) -> str:
    return '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":{"s":{"k":' + literal + "}}}]}"


def with_field(field: str) -> str:
    return '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":"s",' + field + "}]}"


def toml_with(line: str) -> str:
    return f'tenterhook = 1\n[[hook]]\nid = "a"\non = "x"\nat = "grad"\n{line}\n'


def plan_with(value: object) -> Plan:
    return Plan([Hook("a", on="x", at="grad", do=Action("s", {"k": value}))])


def param(plan: Plan) -> object:
    return plan["a"].do.params["k"]


def nested(depth: int) -> list:
    return functools.reduce(lambda inner, _: [inner], range(depth - 1), [])


def refusal(read, *arguments, kind: type[PlanError] = PlanFileError) -> str:
    with pytest.raises(PlanError) as raised:
        read(*arguments)
    assert type(raised.value) is kind
    return str(raised.value)


def seconds(call) -> float:
    """Measure processor time, so that the test does not fail on a busy machine."""
    before = time.process_time()
    call()
    return time.process_time() - before


# --- writing


def test_the_canonical_text_is_sorted_without_white_space_or_defaults():
    assert PLAN.to_json() == CANONICAL


def test_the_digest_is_the_sha256_of_the_canonical_text():
    assert PLAN.digest == hashlib.sha256(CANONICAL.encode()).hexdigest()


def test_the_digest_is_the_same_in_every_release_of_the_format():
    assert Plan().to_json() == '{"hooks":[],"tenterhook":1}'
    assert Plan().digest == "591fcdda67e4b273db00b4dfda708c48d9aabbfd61043413118dafcf8cf083c8"


def test_the_text_is_read_back_as_the_same_plan():
    assert Plan.from_json(CANONICAL) == PLAN
    assert Plan.from_json(CANONICAL.encode()) == PLAN


names = st.text("ab0_", min_size=1, max_size=4)
selectors = st.lists(names, min_size=1, max_size=3).map(".".join) | st.sampled_from(["**", "a.*", "type:Linear", "*:p"])
words = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from('\n\r\t"\\/'),
    max_size=6,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-MAX_INTEGER, MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
whens = st.builds(
    When,
    every=st.integers(1, 50),
    start=st.integers(0, 50),
    stop=st.none() | st.integers(51, 99),
    phase=st.sampled_from([None, "train", "eval", "any"]),
    after_trip=st.none() | st.integers(1, 5),
)
hooks = st.builds(
    Hook,
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,9}", fullmatch=True),
    on=selectors | st.lists(selectors, min_size=1, max_size=3),
    at=st.sampled_from(list(POINTS)),
    do=st.builds(Action, words, st.dictionaries(words, values, max_size=3)),
    when=whens,
    expect=st.none() | st.integers(0, 9),
    on_error=st.sampled_from([None, "raise", "mute"]),
)
plans = st.lists(hooks, max_size=4, unique_by=lambda h: h.id).map(Plan)


@settings(max_examples=60, deadline=None, database=None)
@given(plans)
def test_save_after_load_is_byte_identical(plan):
    text = plan.to_json()
    back = Plan.from_json(text)
    assert back == plan
    assert back.to_json() == text
    assert back.digest == plan.digest


@settings(max_examples=25, deadline=None, database=None)
@given(plans, st.randoms(use_true_random=False))
def test_the_order_of_keys_and_white_space_do_not_matter(plan, shuffler):
    def shuffled(value):
        if isinstance(value, dict):
            items = [(k, shuffled(v)) for k, v in value.items()]
            shuffler.shuffle(items)
            return dict(items)
        return [shuffled(v) for v in value] if isinstance(value, list) else value

    other = json.dumps(shuffled(json.loads(plan.to_json())), indent=shuffler.choice([None, 1, 4]))
    assert Plan.from_json(other).digest == plan.digest


@pytest.mark.parametrize("one, other", [(1, 1.0), (0, -0.0), (2**53, 2.0**53), (100, 1e2), ([1], (1.0,))])
def test_a_whole_number_is_one_number_however_written(one, other):
    assert plan_with(one).digest == plan_with(other).digest


@pytest.mark.parametrize("one, other", [(1, 1.5), (1, True), (0, False), (1, "1"), (None, "null"), ([], {}), (0, None)])
def test_different_values_are_different_plans(one, other):
    assert plan_with(one).digest != plan_with(other).digest


def test_different_plans_have_different_digests():
    one, other = (Hook(i, on="x", at="grad", do=Action("s")) for i in "ab")
    assert len({Plan(hs).digest for hs in ([], [one], [other], [one, other], [other, one])}) == 5


@pytest.mark.parametrize("literal, value", [("1.0", 1), ("1e2", 100), ("0.5", 0.5), ("9007199254740992", 2**53)])
def test_a_number_is_read_as_its_value(literal, value):
    read = param(Plan.from_json(with_param(literal)))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "short, long",
    [
        ('"do":"s"', '"do":{"s":{}}'),
        ('"on":"x"', '"on":["x"]'),
        ('"do":"s"', '"do":"s","when":{}'),
        ('"do":"s"', '"do":"s","when":null,"expect":null,"on_error":null'),
        ('"do":"s"', '"do":"s","when":{"every":1,"start":0,"stop":null}'),
    ],
)
def test_what_is_default_may_be_said_or_not(short, long):
    text = '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":"s"}]}'
    one, other = Plan.from_json(text), Plan.from_json(text.replace(short, long))
    assert one == other
    assert one.digest == other.digest


def test_an_escaped_character_is_the_character():
    assert param(Plan.from_json(with_param(r'"\u00e9\ud83d\ude00\n"'))) == "é😀\n"


# --- plans that cannot be written


def double(value):
    return value * 2


class Doubler:
    def __call__(self, value):
        return value * 2


@pytest.mark.parametrize(
    "do, code, name",
    [
        (double, double.__code__, "double"),
        (noname := lambda v: v, noname.__code__, "mine"),
        (functools.partial(double), double.__code__, "mine"),
        (Doubler(), Doubler.__call__.__code__, "mine"),
        (Doubler().__call__, Doubler.__call__.__code__, "call"),
    ],
)
@pytest.mark.parametrize("write", [Plan.to_json, lambda plan: plan.digest])
def test_a_function_without_a_name_is_not_written(write, do, code, name):
    plan = Plan([Hook("a", on="x", at="grad", do=do)])
    assert refusal(write, plan, kind=PlanError) == (
        f"hook 'a' at grad: the function at {__file__}:{code.co_firstlineno} is not registered, "
        "so a plan file cannot refer to it\n"
        f'  remedy: register the function: write @th.action("{name}", modifies=True) above its def; leave '
        "out modifies=True if it returns nothing"
    )


@pytest.mark.parametrize(
    "value, text",
    [
        (2**53 + 1, "hook 'a': the number 9007199254740993 is not within ±2^53"),
        (-(2**53) - 1, "hook 'a': the number -9007199254740993 is not within ±2^53"),
        (float("nan"), "hook 'a': the number nan is not finite"),
        (float("-inf"), "hook 'a': the number -inf is not finite"),
        ({1}, "hook 'a': a parameter cannot have type set\n  remedy: use a JSON type"),
        (b"x", "hook 'a': a parameter cannot have type bytes\n  remedy: use a JSON type"),
        ([double], "hook 'a': a parameter cannot have type function\n  remedy: use a JSON type"),
        ({"x": {1: 2}}, "hook 'a': a parameter cannot have type dict\n  remedy: use a JSON type"),
    ],
)
def test_a_value_that_json_has_not_is_not_written(value, text):
    assert refusal(plan_with(value).to_json) == text


@pytest.mark.parametrize("depth", [0, MAX_DEPTH - 5])
def test_the_deepest_value_is_written_and_read(depth):
    assert param(Plan.from_json(plan_with(nested(depth)).to_json())) == nested(depth)


LOOP: list = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "do",
    [
        pytest.param(Action("s", {"k": "\0"}), id="a NUL"),
        pytest.param(Action("s", {"k": "\b"}), id="a backspace"),
        pytest.param(Action("s", {"k": "\x7f"}), id="a delete"),
        pytest.param(Action("s", {"k": "\ud800"}), id="a lone surrogate"),
        pytest.param(Action("s", {"\0": 1}), id="a NUL in a key"),
        pytest.param(Action("\0"), id="a NUL in a name"),
        pytest.param(Action(5), id="a name that is not a string"),
        pytest.param(Action("s", {1: 2}), id="a key that is not a string"),
        pytest.param(Action("s", {1: 2, "a": 3}), id="keys of two types"),
        pytest.param(Action("s", {"k": nested(MAX_DEPTH - 4)}), id="too deep"),
        pytest.param(Action("s", {"k": nested(5000)}), id="far too deep"),
        pytest.param(Action("s", {"k": LOOP}), id="a loop"),
        pytest.param(Action("s", {"k": "x" * MAX_BYTES}), id="too large"),
        pytest.param(Action("s", {"k": [0] * MAX_VALUES}), id="too many"),
        pytest.param(Action("s", {"k": 10**5000}), id="a number too long to print"),
    ],
)
@pytest.mark.parametrize("write", [Plan.to_json, lambda plan: plan.digest], ids=["to_json", "digest"])
def test_what_could_not_be_read_back_is_not_written(write, do):
    with pytest.raises(PlanError) as raised:
        write(Plan([Hook("a", on="x", at="grad", do=do)]))
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("count", [2**53 + 1, 10**5000], ids=["2^53+1", "10^5000"])
@pytest.mark.parametrize(
    "fields", [lambda n: {"when": When(every=n)}, lambda n: {"expect": n}], ids=["every", "expect"]
)
def test_a_count_past_2_to_the_53_is_not_written(fields, count):
    with pytest.raises(PlanError):
        Plan([Hook("a", on="x", at="grad", do=Action("s"), **fields(count))]).to_json()


# --- reading


def test_toml_says_the_same_as_json():
    assert Plan.from_toml(TOML).digest == Plan(PLAN.hooks[:2]).digest
    assert Plan.from_toml(TOML.encode()) == Plan(PLAN.hooks[:2])


def test_toml_without_a_hook_is_the_empty_plan():
    assert Plan.from_toml("tenterhook = 1") == Plan()


def test_load_goes_by_the_name_of_the_file(tmp_path):
    (tmp_path / "plan.json").write_text(CANONICAL, encoding="utf-8")
    (tmp_path / "plan.toml").write_text(TOML, encoding="utf-8")
    assert Plan.load(tmp_path / "plan.json") == PLAN
    assert Plan.load(str(tmp_path / "plan.toml")) == Plan(PLAN.hooks[:2])


def test_load_refuses_other_kinds_of_file(tmp_path):
    path = tmp_path / "plan.yaml"
    assert refusal(Plan.load, path) == (
        f"{path} is neither .json nor .toml\n  remedy: write the plan as JSON or TOML, and name the file accordingly"
    )


def test_load_refuses_a_folder(tmp_path):
    assert refusal(Plan.load, tmp_path) == (
        f"{tmp_path} is a folder, not a plan file\n  remedy: pass a plan file in JSON or TOML"
    )
    (tmp_path / "clip.toml").write_text("tenterhook = 1")
    assert refusal(Plan.load, tmp_path).endswith(f"remedy: pass a file, such as {tmp_path}/clip.toml")


def test_load_says_which_file_is_not_there(tmp_path):
    path = tmp_path / "plan.json"
    assert refusal(Plan.load, path) == (
        f"{path} does not exist\n  remedy: pass the path of a plan file in JSON or TOML"
    )
    (tmp_path / "plans.json").write_text("{}")
    assert refusal(Plan.load, path) == f"{path} does not exist\n  remedy: pass the nearest file, {tmp_path}/plans.json"
    path.mkdir()
    assert refusal(Plan.load, path) == (
        f"{path} is a folder, not a plan file\n  remedy: pass a plan file in JSON or TOML"
    )


def test_load_refuses_a_path_that_cannot_be():
    with pytest.raises(PlanFileError):
        Plan.load("a\0.json")


def test_load_says_which_file_is_wrong(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"tenterhook":2,"hooks":[]}')
    assert refusal(Plan.load, path) == f"{path}: the plan has format 2, but this version of tenterhook reads format 1"


def test_load_says_which_file_and_which_hook_is_wrong(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(CANONICAL.replace('"at":"value"', '"at":"valu"'), encoding="utf-8")
    assert refusal(Plan.load, path, kind=PlanError) == (
        f"hook 'probs': {path}: the point 'valu' does not exist; the nearest is 'value'\n"
        '  remedy: write at="value", or run `tenterhook points` to list all points'
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", f"the text is not a plan: it is empty{NOT_A_PLAN}"),
        ("[]", f"the text is not a plan: the value must be an object, but it is a list{NOT_A_PLAN}"),
        ('{"hooks":[]}', f"the text is not a plan: the field 'tenterhook' is missing{NOT_A_PLAN}"),
        ('{"tenterhook":1}', f"the text is not a plan: the field 'hooks' is missing{NOT_A_PLAN}"),
        ('{"tenterhook":2,"hooks":[]}', "the plan has format 2, but this version of tenterhook reads format 1"),
        ('{"tenterhook":0,"hooks":[]}', "the plan has format 0, but this version of tenterhook reads format 1"),
        (
            '{"tenterhook":"1","hooks":[]}',
            "the text is not a plan: tenterhook: the value must be a whole number, but it is text\n"
            '  remedy: write a value such as "tenterhook": 1, without quotes',
        ),
        (
            '{"tenterhook":true,"hooks":[]}',
            "the text is not a plan: tenterhook: the value must be a whole number, but it is true or false\n"
            '  remedy: write a value such as "tenterhook": 1',
        ),
        (
            '{"tenterhook":1,"hooks":{}}',
            f"the text is not a plan: hooks: the value must be a list, but it is an object{NOT_A_PLAN}",
        ),
        (
            '{"tenterhook":1,"hooks":["a"]}',
            f"the text is not a plan: hook 1 of the text: the value must be an object, but it is text{NOT_A_PLAN}",
        ),
        (
            '{"tenterhook":1,"hooks":[],"hook":[]}',
            "the text is not a plan: a plan has no field 'hook'\n  remedy: write 'hooks'",
        ),
        (
            '{"tenterhook":1,"hooks":[],"color":1}',
            "the text is not a plan: a plan has no field 'color'\n"
            "  remedy: remove it; the fields are tenterhook, hooks",
        ),
        (with_field('"onn":"x"'), f"{IN_HOOK}: a hook has no field 'onn'\n  remedy: write 'on'"),
        (
            with_field('"every":2'),
            f'{IN_HOOK}: a hook has no field \'every\'\n  remedy: write "when": {{"every": 10}}',
        ),
        (
            '{"tenterhook":1,"hooks":[{"id":"a","target":"x","at":"grad","do":"stats"}]}',
            "hook 'a': a hook has no field 'target'\n  remedy: write 'on' instead",
        ),
        (with_field('"when":{"evry":2}'), f"{IN_HOOK}: `when` has no field 'evry'\n  remedy: write 'every'"),
        (
            with_field('"when":10'),
            f"{IN_HOOK}: when: the value must be an object or null, but it is a whole number\n"
            '  remedy: write a value such as "when": {"every": 10}',
        ),
        (
            with_field('"expect":"2"'),
            f"{IN_HOOK}: expect: the value must be a whole number or null, but it is text\n"
            '  remedy: write a value such as "expect": 2, without quotes',
        ),
        (
            with_field('"expect":true'),
            f"{IN_HOOK}: expect: the value must be a whole number or null, but it is true or false\n"
            '  remedy: write a value such as "expect": 2',
        ),
        (
            with_field('"when":{"every":2.5}'),
            f"{IN_HOOK}: when.every: the value must be a whole number, but it is a number with a fraction\n"
            '  remedy: write a value such as "every": 10',
        ),
        (
            with_field('"on_error":"ignore"'),
            f'{IN_HOOK}: on_error: unknown value \'ignore\'\n  remedy: write "on_error": "raise" or "on_error": "mute"',
        ),
        (
            CANONICAL[:-1],
            "the text is not valid JSON at its end (input data was truncated)\n"
            "  remedy: close every bracket and quotation mark",
        ),
        (
            '{"tenterhook":1,\n"hooks":[],}',
            'the text is not valid JSON at line 2: "hooks":[],} (trailing comma in object)\n'
            "  remedy: remove the comma before the closing bracket",
        ),
        (
            '{"tenterhook":"1","hooks":[],}',
            'the text is not valid JSON at line 1: {"tenterhook":"1","hooks":[],} (trailing comma in object)\n'
            "  remedy: remove the comma before the closing bracket",
        ),
        (
            "{'tenterhook':1}",
            "the text is not valid JSON at line 1: {'tenterhook':1} (object keys must be strings)\n"
            '  remedy: write keys and text in double quotes, as in "on"',
        ),
        (
            "plans/clip.json",
            "the text is not a plan: it is the path 'plans/clip.json'\n"
            "  remedy: read the file with th.Plan.load('plans/clip.json')",
        ),
        (
            '{"tenterhook":1,"hooks":[{"on":"x","at":"grad","do":"stats"}]}',
            'the text is not a plan: hook 1 of the text: the field \'id\' is missing\n  remedy: add "id": "clip"',
        ),
        (
            '{"tenterhook":1,"hooks":[{"id":"a","on":"x","do":"stats"}]}',
            "hook 'a': the field 'at' is missing\n"
            '  remedy: add "at": "grad_final", or another point; `tenterhook points` lists them',
        ),
        (
            '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":{"scale":2}}]}',
            'hook \'a\': the parameter of \'scale\' has no name\n  remedy: write "do": {"scale": {"by": 2}}',
        ),
        (
            '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":{}}]}',
            "hook 'a': `do` names 0 actions\n  remedy: name exactly one action in each hook",
        ),
        (
            '{"tenterhook":1,"hooks":[{"id":"a","on":"x","at":"grad","do":{"s":{},"t":{}}}]}',
            "hook 'a': `do` names 2 actions\n  remedy: name exactly one action in each hook",
        ),
    ],
)
def test_what_is_not_a_plan_says_so(text, message):
    assert refusal(Plan.from_json, text) == message


@pytest.mark.parametrize(
    "text",
    [
        '{"tenterhook":1,"hooks":{}}',
        '{"tenterhook":1,"hooks":null}',
        '{"tenterhook":1,"hooks":["a"]}',
        with_field('"id":5'),
        with_field('"when":10'),
        with_field('"when":{"every":"2"}'),
        with_field('"when":{"every":true}'),
        with_field('"when":{"phase":"test"}'),
        with_param("1").replace('"x"', "5"),
        with_param("1").replace('"x"', '["x",5]'),
        with_param("1").replace('{"s":{"k":1}}', "null"),
        with_param("1").replace('{"s":{"k":1}}', '["s"]'),
        with_param("1").replace('{"k":1}', "1"),
        CANONICAL + "x",
        CANONICAL + CANONICAL,
        CANONICAL + "\0",
        CANONICAL.replace("}]", "},]"),
        "// a comment\n" + CANONICAL,
        CANONICAL.replace('"', "'"),
    ],
)
def test_json_is_read_strictly(text):
    with pytest.raises(PlanFileError):
        Plan.from_json(text)


@pytest.mark.parametrize(
    "text, message",
    [
        (with_field('"expect":-1'), "hook 'a' at grad: expect=-1: expect must be a whole number of at least 0"),
        (with_field('"when":{"every":0}'), "hook 'a': When(every=0): every must be a whole number of at least 1"),
        (with_param("1").replace('"x"', '"a.***"'), "hook 'a' at grad: the pattern 'a.***' has three stars in a row\n"
         "  remedy: use * or **"),
        (CANONICAL.replace('"id":"probs"', '"id":"attn"'), "hook 'attn': two hooks in the plan have this id\n"
         "  remedy: give each hook its own id"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_hook_names_the_hook(text, message):
    assert refusal(Plan.from_json, text, kind=PlanError) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tenterhook = 2",
        "tenterhook = true",
        "tenterhook = '1'",
        "tenterhook = 1.0",
        "tenterhook = 1\ntenterhook = 1",
        "tenterhook = 1\nhooks = []",
        "tenterhook = 1\n[hook]\nid = 'a'",
        toml_with(""),
        toml_with("do = 's'\nexpect = '2'"),
        toml_with("do = 's'\nexpect = true"),
        toml_with("do = 's'\nexpect = 2.0"),
        toml_with("do = 's'\nonn = 'x'"),
        toml_with("do = 's'\ndo = 't'"),
        toml_with("do = 's'\nid = 'b'"),
        toml_with("do = 2020-01-01"),
        toml_with("do.s.k = 2020-01-01"),
        toml_with("do.s.k = nan"),
        toml_with("do.s.k = inf"),
        toml_with("do.s.k = 9007199254740993"),
        toml_with("do.s.k = " + "1" * 5000),
        toml_with("do.s.k = 0x" + "f" * 5000),
        toml_with("do = 's'\nexpect = " + "1" * 5000),
    ],
)
def test_toml_is_read_strictly(text):
    with pytest.raises(PlanFileError) as raised:
        Plan.from_toml(text)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    "line, message",
    [
        ("do = stats", 'the text is not valid TOML at line 6: do = stats (invalid value)\n'
                       '  remedy: write text in quotes: do = "stats"'),
        ('do = "stats', "the text is not valid TOML at line 6: do = \"stats (illegal character '\\n')\n"
                        "  remedy: correct this line"),
        ('do = "stats"\nwhen = {every = "10"}',
         "hook 'a': when.every: the value must be a whole number, but it is text\n"
         "  remedy: write a value such as every = 10, without quotes"),
        ("do = {clip_norm = 1.0}",
         "hook 'a': the parameter of 'clip_norm' has no name\n"
         "  remedy: write do = {clip_norm = {max = 1.0}}"),
        ("", "hook 'a': the field 'do' is missing\n  remedy: add do = \"stats\""),
    ],
)  # fmt: skip
def test_a_wrong_line_of_toml_is_answered_with_what_to_write(line, message):
    text = f'tenterhook = 1\n[[hook]]\nid = "a"\non = "**"\nat = "grad"\n{line}\n'
    assert refusal(Plan.from_toml, text) == message


# --- numbers


@pytest.mark.parametrize(
    "literal", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "1.", "0x1", "1" * 400, "1" * 5000]
)
def test_a_number_that_json_has_not_is_refused(literal):
    with pytest.raises(PlanFileError):
        Plan.from_json(with_param(literal))


@pytest.mark.parametrize("literal", ["9007199254740993", "-9007199254740993", "18446744073709551616"])
def test_an_integer_past_2_to_the_53_is_refused(literal):
    assert refusal(Plan.from_json, with_param(literal)) == f"hook 'a': the number {literal} is not within ±2^53"


@pytest.mark.parametrize("field", ['"expect":', '"when":{"every":', '"when":{"start":', '"when":{"stop":'])
@pytest.mark.parametrize("literal", ["9007199254740993", "1180591620717411303424", "1" * 5000])
def test_a_count_past_2_to_the_53_is_refused(field, literal):
    with pytest.raises(PlanError):
        Plan.from_json(with_field(field + literal + "}" * field.count("{")))


# --- size and depth

TOO_LONG = {
    Plan.from_json: "the text is longer than 65536 bytes",
    Plan.from_toml: "the text is longer than 12288 bytes\n"
    "  remedy: write the plan as JSON, which may have up to 65536 bytes",
}


@pytest.mark.parametrize("read", [Plan.from_json, Plan.from_toml])
@pytest.mark.parametrize("kind", [str, bytes])
def test_a_text_of_30_mb_is_refused_at_once(read, kind):
    text = " " * 30_000_000
    text = text if kind is str else text.encode()
    messages = []
    assert seconds(lambda: messages.append(refusal(read, text))) < 0.3
    assert messages == [TOO_LONG[read]]


def test_a_file_of_30_mb_is_refused_without_being_read(tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"[" * 30_000_000)
    tracemalloc.start()
    assert refusal(Plan.load, path) == f"{path}: {TOO_LONG[Plan.from_json]}"
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 10_000_000


def test_the_longest_text_is_read():
    text = CANONICAL + " " * (MAX_BYTES - len(CANONICAL.encode()))
    assert Plan.from_json(text.encode()) == PLAN
    assert refusal(Plan.from_json, text.encode() + b" ") == TOO_LONG[Plan.from_json]


def test_the_size_is_in_bytes_for_a_string_too():
    text = with_param('"%s"' % ("é" * 40_000))
    assert refusal(Plan.from_json, text.encode()) == TOO_LONG[Plan.from_json]
    assert refusal(Plan.from_json, text) == TOO_LONG[Plan.from_json]


@pytest.mark.parametrize("bomb", ["[", '{"a":', '[{"a":'])
@pytest.mark.parametrize(("read", "before"), [(Plan.from_json, ""), (Plan.from_toml, "a = ")], ids=["json", "toml"])
def test_a_text_nested_too_deep_is_refused(read, before, bomb):
    assert refusal(read, before + bomb * 5_000_000) == TOO_LONG[read]
    assert refusal(read, before + bomb * (MAX_TOML // len(bomb) - 10)) == "the text is nested deeper than 16 levels"


def test_a_text_of_too_many_parts_is_refused():
    assert refusal(Plan.from_json, "[],{}" * 10_000) == "the text has more than 32768 strings and brackets"


def test_the_depth_counts_every_level():
    deepest = MAX_DEPTH - 5
    assert param(Plan.from_json(with_param("[" * deepest + "]" * deepest))) == nested(deepest)
    too_deep = with_param("[" * (deepest + 1) + "]" * (deepest + 1))
    assert refusal(Plan.from_json, too_deep) == "the text is nested deeper than 16 levels"


def test_brackets_in_strings_are_not_depth():
    assert param(Plan.from_json(with_param('"%s"' % ("[{" * 100)))) == "[{" * 100
    assert (
        refusal(Plan.from_json, with_param('["]",' * 20 + "1" + "]" * 20)) == "the text is nested deeper than 16 levels"
    )


@pytest.mark.parametrize(
    "value",
    [
        "[" * 14 + "]" * 14,
        '["]",' * 20 + "1" + "]" * 20,
        '["]",' * 3000 + "1" + "]" * 3000,
    ],
    ids=["plain", "with closing brackets in strings", "far deeper"],
)
def test_toml_has_the_depth_of_json(value):
    with pytest.raises(PlanFileError):
        Plan.from_toml(toml_with(f"do.s.k = {value}"))


def test_toml_that_is_too_deep_is_refused_before_it_is_parsed():
    deep = toml_with("do.s.k = " + "[" * 20 + "]" * 20)
    assert refusal(Plan.from_toml, deep) == "the text is nested deeper than 16 levels"


@pytest.mark.parametrize("depth", [20, 100, 2000])
def test_dotted_keys_are_depth(depth):
    with pytest.raises(PlanFileError):
        Plan.from_toml(toml_with(f"do.s{'.k' * depth} = 1"))


@pytest.mark.parametrize(
    "read, text",
    [
        pytest.param(Plan.from_json, '"' + '\\"' * 8000, id="a string that does not end"),
        pytest.param(Plan.from_json, '{"' + '\\\\\\"' * 4000, id="a key that does not end"),
        pytest.param(Plan.from_json, '"' * 100_001, id="empty strings"),
        pytest.param(Plan.from_json, '"\\\n' * 100_000, id="broken escapes"),
        pytest.param(Plan.from_json, "{" + '"a",' * 100_000, id="keys without values"),
        pytest.param(Plan.from_toml, "k" + ".k" * 8000 + " = 1", id="a dotted key"),
        pytest.param(Plan.from_toml, "[k" + ".k" * 8000 + "]", id="a dotted table"),
        pytest.param(Plan.from_toml, "k = '''" + "''" * 50_000, id="quotes that do not end"),
    ],
)
def test_a_small_text_takes_little_time_to_refuse(read, text):
    assert seconds(lambda: refusal(read, text)) < 0.4


# --- keys and characters


@pytest.mark.parametrize(
    "text, key",
    [
        ('{"tenterhook":1,"tenterhook":1,"hooks":[]}', "tenterhook"),
        ('{"tenterhook":1,"hooks":[],"hooks":[]}', "hooks"),
        (with_field('"id":"b"'), "id"),
        (with_field(r'"\u0069d":"b"'), "id"),
        (with_field(r'"\u0069\u0064" : "b"'), "id"),
        (with_field('"when":{"every":1,"every":2}'), "every"),
        (with_param('1,"k":2'), "k"),
        (with_param('1,"\\u006b":2'), "k"),
        (with_param(r'{"\"":1,"\u0022":2}'), '"'),
        (with_param('[{"x":1,"y":[{"x":3}],"x":2}]'), "x"),
    ],
)
def test_a_key_that_stands_twice_is_refused(text, key):
    message = refusal(Plan.from_json, text)
    assert message == f"the key {key!r} occurs twice, the second time at position {message.rpartition(' ')[2]}"
    assert text[int(message.rpartition(" ")[2])] == ":"


def test_the_same_key_may_stand_in_two_objects():
    assert param(Plan.from_json(with_param('[{"x":1},{"x":{"x":2}},"x","x"]'))) == [{"x": 1}, {"x": {"x": 2}}, "x", "x"]


@pytest.mark.parametrize("read", [Plan.from_json, Plan.from_toml])
def test_a_byte_order_mark_is_refused(read):
    text = "the text begins with a byte order mark\n  remedy: save the file as UTF-8 without a byte order mark"
    assert refusal(read, "\ufeff" + CANONICAL) == text
    assert refusal(read, b"\xef\xbb\xbf" + CANONICAL.encode()) == text


@pytest.mark.parametrize("read", [Plan.from_json, Plan.from_toml])
@pytest.mark.parametrize(
    "wrong", [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xc0\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82"]
)
def test_what_is_not_utf8_is_refused(read, wrong):
    assert refusal(read, b'{"' + wrong) == "the text is not valid UTF-8 at byte 2"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_are_refused(encoding):
    with pytest.raises(PlanFileError):
        Plan.from_json(CANONICAL.encode(encoding))


FORBIDDEN = [
    *(chr(c) for c in range(32) if chr(c) not in "\t\n\r"),
    *("\x7f", "\x80", "\x9b", "\x9f"),
    *("\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"),  # direction, lines
    *("\ud800", "\udfff"),
]


@pytest.mark.parametrize("read", [Plan.from_json, Plan.from_toml])
@pytest.mark.parametrize("character", FORBIDDEN, ids=ascii)
def test_a_raw_control_character_is_refused(read, character):
    assert (
        refusal(read, f'{{"{character}')
        == f"the text contains the forbidden character U+{ord(character):04X} at position 2"
    )


@pytest.mark.parametrize("character", FORBIDDEN, ids=ascii)
@pytest.mark.parametrize("place", ['{"s":{"k":"%s"}}', '{"s":{"%s":1}}', '{"%s":{}}', '{"s":{"k":["a%sb"]}}'])
def test_an_escaped_control_character_is_refused(place, character):
    text = with_param("1").replace('{"s":{"k":1}}', place % f"\\u{ord(character):04x}")
    assert refusal(Plan.from_json, text).startswith("the text contains an escaped control character at position ")


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "1" + "0" * 4000, str(2**53 + 1)])
def test_a_format_that_is_too_long_to_print_is_refused(number):
    assert refusal(Plan.from_toml, f"tenterhook = {number}") == (
        "the plan has format a number with too many digits, but this version of tenterhook reads format 1"
    )


@pytest.mark.parametrize("escape", [r"\b", r"\f", r"a\\\b"])
def test_a_control_character_with_an_escape_of_its_own_is_refused(escape):
    with pytest.raises(PlanFileError):
        Plan.from_json(with_param(f'"{escape}"'))


@pytest.mark.parametrize("escape", [r"\u0000", r"\b", r"\f", r"\u001b", r"\u007f", r"\U00000000", r"\ud800"])
@pytest.mark.parametrize("line", ['do.s.k = "%s"', 'do.s."%s" = 1', 'do = "%s"'])
def test_an_escaped_control_character_is_refused_in_toml(line, escape):
    with pytest.raises(PlanFileError):
        Plan.from_toml(toml_with(line % escape))


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00", r"\ude00\ud83d", r"\ud83dx\ude00"])
def test_half_a_surrogate_pair_is_refused(half):
    assert refusal(Plan.from_json, with_param(f'"{half}"')).startswith(
        "the text contains an escaped control character at position "
    )


@pytest.mark.parametrize("raw", ["\n", "\t", "\r"])
def test_a_raw_line_end_in_a_json_string_is_refused(raw):
    with pytest.raises(PlanFileError):
        Plan.from_json(with_param(f'"{raw}"'))


# --- code


@pytest.mark.parametrize("do", ["trap", "trap.run", "trap:run", "__import__('trap')", "!!python/name:trap.run"])
def test_a_name_of_code_stays_a_name(do, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("def run(value): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    text = json.dumps(
        {"tenterhook": 1, "hooks": [{"id": "a", "on": "type:trap.Net", "at": "grad", "do": {do: {"f": do}}}]}
    )
    plan = Plan.from_json(text)
    assert plan["a"].do == Action(do, {"f": do})
    plan["a"].selector.matches("head", ("trap.Net",))
    assert plan.digest
    assert "trap" not in sys.modules


def test_the_trap_could_have_been_imported(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("def run(value): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("trap")
    assert sys.modules.pop("trap").run


# --- mutated and random texts

SNIPPETS = ["{", "}", "[", "]", '"', "\\", ":", ",", "\\u0000", "\\ud800", "null", "true", "1e999", "-", "9" * 400,
            "\0", "é", "\ufeff", '"id":', "[[hook]]", "=", "'''", '"""', "#", "\n", "\r", ".", "!", "**", "***",
            "type:", "2020-01-01", "nan", "0x", "[" * 20, '"do":{}', "+", "_", "inf", "\\U00110000"]  # fmt: skip


def survives(read, text: str | bytes) -> bool:
    """Return True if the text was read, and False if it was refused with a PlanError."""
    try:
        plan = read(text)
    except PlanError as error:
        assert str(error)
        return False
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    return True


@pytest.mark.parametrize("read, text", [(Plan.from_json, CANONICAL), (Plan.from_toml, TOML)], ids=["json", "toml"])
def test_mutated_bytes_are_read_or_refused(read, text):
    source = random.Random(20)
    read_in_spite = 0
    for _ in range(4000):
        raw = bytearray(text.encode())
        for _ in range(source.choice([1, 1, 2, 5, 20])):
            at = source.randrange(len(raw))
            to = min(len(raw), at + source.choice([0, 1, 1, 4, 40]))
            raw[at:to] = source.choice([b"", bytes([source.randrange(256)]), raw[at:to] * 2, raw[to : to + 9]])
        read_in_spite += survives(read, bytes(raw))
    assert 0 < read_in_spite < 3000


@settings(max_examples=250, deadline=None, database=None)
@given(
    st.sampled_from([(Plan.from_json, CANONICAL), (Plan.from_toml, TOML)]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5), st.sampled_from(SNIPPETS)), min_size=1, max_size=4),
)
def test_spliced_texts_are_read_or_refused(reader, splices):
    read, text = reader
    for at, length, snippet in splices:
        at %= len(text)
        text = text[:at] + snippet + text[at + length :]
    survives(read, text)


@settings(max_examples=200, deadline=None, database=None)
@given(st.binary(max_size=60) | st.text(max_size=60))
def test_anything_at_all_is_refused(text):
    with pytest.raises(PlanFileError):
        Plan.from_json(text)
    with pytest.raises(PlanFileError):
        Plan.from_toml(text)
