import functools
import re
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenterhook.errors import PlanError
from tenterhook.plan import ALWAYS, POINTS, Action, Hook, Plan, Selector, When, callable_name, callable_place
from tenterhook.plan.plan import MAX_HOOKS


def double(value):
    return value * 2


class Doubler:
    def __call__(self, value):
        return value * 2

    def twice(self, value):
        return value * 2


class Registered:
    """Imitate a registered action that is passed without parentheses."""

    def __call__(self, **params):
        raise AssertionError("the action must not run")

    def as_action(self):
        return Action("stats")


def hook(id="a", **fields) -> Hook:
    return Hook(id, **({"on": "**", "at": "grad", "do": double} | fields))


def refusal(make) -> str:
    with pytest.raises(PlanError) as raised:
        make()
    return str(raised.value)


ID_REMEDY = "\n  remedy: use up to 64 letters, digits and _ . # -, and begin with a letter, a digit or _"
DO_REMEDY = "\n  remedy: pass a function fn(value), or an action such as th.clip_value(1.0)"
POINT_REMEDY = f"\n  remedy: use one of {', '.join(POINTS)}"
NAME_REMEDY = (
    '\n  remedy: write a name or a pattern: on="**" selects everything, on="**.weight" parameters, on="type:Linear" '
    "modules"
)


class Block:
    """A class with the methods of a module by which a plan, which does not import torch, knows one."""

    def named_modules(self): ...


@pytest.mark.parametrize("id", ["a", "_", "0", "clip.norm#2-b", "A" * 64])
def test_an_id_is_letters_digits_and_a_few_signs(id):
    assert hook(id).id == id


@pytest.mark.parametrize("id", ["", ".a", "-a", "#a", "a b", "a/b", "a\n", "é", "a" * 65])
def test_what_is_not_an_id_is_refused(id):
    assert refusal(lambda: hook(id)) == f"{id!r} is not a valid hook id{ID_REMEDY}"


@pytest.mark.parametrize("id", [None, 5])
def test_an_id_is_text(id):
    assert refusal(lambda: hook(id)) == (
        f'the id of a hook must be text, but it is {id}\n  remedy: write a name in quotes, such as th.Hook("clip", ...)'
    )


@pytest.mark.parametrize(
    "fields, text",
    [
        (
            {"at": "grad_finale"},
            "hook 'a': the point 'grad_finale' does not exist; the nearest is 'grad_final'\n"
            '  remedy: write at="grad_final", or run `tenterhook points` to list all points',
        ),
        ({"at": "zzz"}, f"hook 'a': the point 'zzz' does not exist{POINT_REMEDY}"),
        (
            {"at": 5},
            "hook 'a': at= is an object of type int, not the name of a point\n"
            '  remedy: write at="grad"; for several points, write a hook for each',
        ),
        (
            {"at": ["output", "grad"]},
            "hook 'a': at= is an object of type list, not the name of a point\n"
            '  remedy: write at="output"; for several points, write a hook for each',
        ),
        (
            {"at": "Gradients"},
            "hook 'a': the point 'Gradients' does not exist; the nearest are 'grad' and 'grad_final'\n"
            '  remedy: write at="grad", or run `tenterhook points` to list all points',
        ),
        (
            {"at": "activations"},
            "hook 'a': the point 'activations' does not exist; the nearest is 'output'\n"
            '  remedy: write at="output", or run `tenterhook points` to list all points',
        ),
        ({"on": 5}, f"hook 'a' at grad: on= is an object of type int, not a name{NAME_REMEDY}"),
        ({"on": None}, f"hook 'a' at grad: on= is an object of type NoneType, not a name{NAME_REMEDY}"),
        ({"on": ["x", 5]}, f"hook 'a' at grad: on= is an object of type int, not a name{NAME_REMEDY}"),
        ({"on": b"x"}, f"hook 'a' at grad: on= is an object of type bytes, not a name{NAME_REMEDY}"),
        ({"on": Block}, "hook 'a' at grad: on= is the class Block, not a name\n  remedy: write on=\"type:Block\""),
        (
            {"on": [Block()]},
            "hook 'a' at grad: on= is a list that contains a Block, not its name\n"
            '  remedy: write a list of names as in model.named_modules(), such as on=["name", "other.name"]',
        ),
        (
            {"on": Block()},
            "hook 'a' at grad: on= is a module of class Block, not a name\n"
            '  remedy: write its name as in model.named_modules(), or on="type:Block" for all modules of this class',
        ),
        (
            {"on": re.compile("h.*")},
            "hook 'a' at grad: on= is a regular expression, not a pattern\n"
            '  remedy: write a pattern: * matches within a part of a name, ** across parts, as in on="**.mlp.*"',
        ),
        (
            {"on": []},
            "hook 'a' at grad: the selector is empty\n  remedy: name a target, or write \"**\" for all targets",
        ),
        (
            {"on": ""},
            "hook 'a' at grad: the selector has an empty pattern\n"
            '  remedy: write "**" for everything, or a name; '
            'the root module is ".", at points of modules such as output',
        ),
        ({"on": "a.***"}, "hook 'a' at grad: the pattern 'a.***' has three stars in a row\n  remedy: use * or **"),
        ({"do": None}, f"hook 'a' at grad: do=None is neither an action nor a function{DO_REMEDY}"),
        (
            {"do": "stats"},
            "hook 'a' at grad: do='stats' is neither an action nor a function\n"
            "  remedy: pass the action with parameters: do=th.stats(...); only a plan file refers to it by name",
        ),
        ({"expect": -1}, "hook 'a' at grad: expect=-1: expect must be a whole number of at least 0"),
        ({"expect": True}, "hook 'a' at grad: expect=True: expect must be a whole number of at least 0"),
        ({"expect": 2.0}, "hook 'a' at grad: expect=2.0: expect must be a whole number of at least 0"),
        ({"expect": "2"}, "hook 'a' at grad: expect='2': expect must be a whole number of at least 0"),
        ({"when": 10}, "hook 'a': when=10 is not a When\n  remedy: write when=th.When(every=10)"),
        ({"when": None}, "hook 'a': when=None is not a When\n  remedy: write when=th.When(every=10)"),
        ({"on_error": "ignore"}, "hook 'a': on_error='ignore': on_error must be 'raise' or 'mute'"),
    ],
)
def test_what_is_not_a_hook_says_so(fields, text):
    assert refusal(lambda: hook(**fields)) == text


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"every": 0}, "When(every=0): every must be a whole number of at least 1"),
        ({"every": None}, "When(every=None): every must be a whole number of at least 1"),
        ({"every": 2.0}, "When(every=2.0): every must be a whole number of at least 1"),
        ({"every": True}, "When(every=True): every must be a whole number of at least 1"),
        ({"every": "2"}, "When(every='2'): every must be a whole number of at least 1"),
        ({"start": -1}, "When(start=-1): start must be a whole number of at least 0"),
        ({"start": None}, "When(start=None): start must be a whole number of at least 0"),
        ({"stop": -1}, "When(stop=-1): stop must be a whole number of at least 0"),
        ({"start": 5, "stop": 5}, "When(start=5, stop=5): stop must be greater than start"),
        ({"after_trip": 0}, "When(after_trip=0): after_trip must be a whole number of at least 1"),
        ({"phase": "test"}, "When(phase='test'): phase must be 'train', 'eval' or 'any'"),
    ],
)
def test_what_is_not_a_when_says_so(fields, text):
    assert refusal(lambda: When(**fields)) == text


def test_when_takes_its_fields_by_name_only():
    with pytest.raises(PlanError) as raised:
        When(10)
    assert str(raised.value) == "When received 10 without a name\n  remedy: write th.When(every=10)"


HOOK_REMEDY = '\n  remedy: write th.Hook("id", on="**", at="grad", do=th.stats())'


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: When(evry=2), "When has no argument 'evry'\n  remedy: write every="),
        (lambda: When(color=2),
         "When has no argument 'color'\n  remedy: its arguments are every, start, stop, phase, after_trip"),
        (lambda: Hook("a", onn="x"), "Hook has no argument 'onn'\n  remedy: write on="),
        (lambda: Hook("a"), f"Hook needs on, at, do{HOOK_REMEDY}"),
        (lambda: Hook("a", on="**", at="grad"), f"Hook needs do{HOOK_REMEDY}"),
        (lambda: Hook(on="**", at="grad", do=print), f"Hook needs id{HOOK_REMEDY}"),
        (lambda: Hook("a", "**", at="grad", do=print), f"Hook received '**' without a name{HOOK_REMEDY}"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_answered_with_what_to_write(make, text):
    with pytest.raises(PlanError) as raised:
        make()
    assert str(raised.value) == text


def test_a_type_error_inside_a_field_is_not_explained_away():
    class Strange(list):
        def __iter__(self):
            raise TypeError("strange")

    with pytest.raises(TypeError, match="strange"):
        Hook("a", on=Strange(), at="grad", do=print)


@pytest.mark.parametrize("phase", [None, "train", "eval", "any"])
def test_when_has_three_phases_or_none(phase):
    assert When(phase=phase).phase == phase


def test_always_is_due_in_every_step():
    assert When() == ALWAYS
    assert all(ALWAYS.due(step) for step in range(5))


@settings(max_examples=200, deadline=None, database=None)
@given(st.integers(1, 7), st.integers(0, 9), st.none() | st.integers(10, 30))
def test_when_is_due_as_a_range_counts(every, start, stop):
    when = When(every=every, start=start, stop=stop)
    due = [step for step in range(40) if when.due(step)]
    assert due == list(range(start, 40 if stop is None else stop, every))


def test_after_trip_and_phase_do_not_move_the_steps():
    assert [s for s in range(9) if When(every=4, start=1, phase="eval", after_trip=2).due(s)] == [1, 5]


@pytest.mark.parametrize("at", POINTS)
def test_a_hook_knows_its_point(at):
    assert hook(at=at).point is POINTS[at]


def test_a_hook_has_the_defaults_of_the_design():
    made = hook()
    assert (made.when, made.expect, made.on_error) == (ALWAYS, None, None)


def test_expect_zero_is_a_count():
    assert hook(expect=0).expect == 0


def test_a_list_of_one_is_that_one():
    assert hook(on=["head"]).on == "head"
    assert hook(on=["head"]) == hook(on="head")


def test_a_list_of_names_becomes_a_tuple():
    assert hook(on=["x", "!y"]).on == ("x", "!y")


def test_a_hook_has_its_selector():
    assert hook(on=["x", "!y"]).selector == Selector(("x", "!y"))


@pytest.mark.parametrize(
    "do, name",
    [
        (double, "double"),
        (lambda v: v, "<lambda>"),
        (functools.partial(double), "partial"),
        (Doubler(), "Doubler"),
        (Doubler().twice, "Doubler.twice"),
        (Doubler, "Doubler"),
        (print, "print"),
    ],
)
def test_any_callable_is_accepted_and_named(do, name):
    made = hook(do=do)
    assert made.do is do
    assert made.doing == callable_name(do) == name


@pytest.mark.parametrize(
    "do, function",
    [
        (double, double),
        (functools.partial(double), double),
        (Doubler(), Doubler.__call__),
        (Doubler().twice, Doubler.twice),
        (functools.partial(Doubler().twice), Doubler.twice),
    ],
)
def test_the_place_of_a_callable_is_file_and_line(do, function):
    assert callable_place(do) == f"{__file__}:{function.__code__.co_firstlineno}"


def test_the_place_of_a_builtin_is_its_module():
    assert callable_place(print) == "builtins"


def test_a_nested_function_is_named_without_locals():
    def inner():
        pass

    assert callable_name(inner) == "test_a_nested_function_is_named_without_locals.inner"


def test_a_registered_action_may_be_named_without_being_called():
    assert hook(do=Registered()).do == Action("stats")


def test_an_action_reads_like_its_call():
    action = Action("clip_norm", {"max": 1.0, "over": "hook"})
    assert str(action) == hook(do=action).doing == "clip_norm(max=1.0, over='hook')"
    assert str(Action("stats")) == "stats()"


@pytest.mark.parametrize(
    "one, other",
    [
        (Action("s", {"x": 1, "y": 2}), Action("s", {"y": 2, "x": 1})),
        (Action("s", {"x": 1}), Action("s", {"x": 1.0})),
        (Action("s", {"x": {"a": 1, "b": 2}}), Action("s", {"x": {"b": 2, "a": 1}})),
        (Action("s"), Action("s", {})),
    ],
)
def test_equal_actions_hash_alike(one, other):
    assert one == other
    assert len({one, other}) == 1


@pytest.mark.parametrize("other", [Action("t", {"x": 1}), Action("s", {"x": 2}), Action("s", {"y": 1}), Action("s")])
def test_different_actions_are_not_equal(other):
    assert Action("s", {"x": 1}) != other


def test_an_action_keeps_its_parameters_when_the_mapping_given_changes():
    params = {"max": 1}
    action = Action("clip_value", params)
    params["max"] = 2
    assert action.params["max"] == 1


def test_equal_hooks_are_equal_and_hash_alike():
    one, other = (hook(do=Action("s", {"x": 1}), on=["a", "b"], when=When(every=2), expect=3) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    "fields",
    [{"on": "x"}, {"at": "update"}, {"do": print}, {"when": When(every=2)}, {"expect": 1}, {"on_error": "mute"}],
)
def test_a_hook_that_differs_in_one_field_is_another(fields):
    assert hook(**fields) != hook()


@pytest.mark.parametrize("value", [Action("s"), When(), hook(), Plan()])
def test_values_are_frozen(value):
    with pytest.raises(FrozenInstanceError):
        setattr(value, next(iter(value.__dataclass_fields__)), None)


def test_a_plan_keeps_the_order_of_its_hooks():
    one, other = hook("b"), hook("a")
    plan = Plan([one, other])
    assert plan.hooks == tuple(plan) == (one, other)
    assert len(plan) == 2
    assert plan != Plan([other, one])


def test_a_plan_takes_any_iterable():
    assert Plan(hook(i) for i in "ab") == Plan((hook("a"), hook("b")))
    assert Plan() == Plan([])


def test_a_hook_is_found_by_its_id():
    plan = Plan([hook("a"), hook("b", on="head")])
    assert plan["b"].on == "head"
    with pytest.raises(KeyError):
        plan["c"]


def test_an_id_stands_once_in_a_plan():
    text = "hook 'a': two hooks in the plan have this id\n  remedy: give each hook its own id"
    assert refusal(lambda: Plan([hook("a"), hook("b"), hook("a", on="x")])) == text


def test_a_plan_is_made_of_hooks_only():
    text = "'clip' is not a Hook\n  remedy: write th.Hook(\"id\", on=..., at=..., do=...)"
    assert refusal(lambda: Plan([hook(), "clip"])) == text


def test_a_plan_has_at_most_so_many_hooks():
    hooks = [hook(f"h{i}") for i in range(MAX_HOOKS + 1)]
    assert len(Plan(hooks[1:])) == 1024
    assert refusal(lambda: Plan(hooks)) == "the plan has 1025 hooks; the limit is 1024"
