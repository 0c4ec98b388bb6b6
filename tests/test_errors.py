import pickle
import re

import pytest

import tenterhook
from tenterhook import errors
from tenterhook.errors import HookError, NoMatchError, NonFiniteError, PlanError, TenterhookError, nearest


def drawn() -> dict[str, str]:
    """Return each class of the tree in the docstring, with its base class."""
    parents: dict[str, str] = {"TenterhookError": "Exception"}
    trail = ["TenterhookError"]
    for branch, name in re.findall(r"^    ([│ ]*[├└]── )(\w+)", errors.__doc__, re.MULTILINE):
        depth = len(branch) // 4
        parents[name] = trail[depth - 1]
        trail[depth:] = [name]
    return parents


def defined() -> dict[str, str]:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    return {c.__name__: c.__base__.__name__ for c in classes}


def test_the_tree_in_the_docstring_is_the_tree_of_classes():
    assert defined() == drawn()


def test_the_tree_is_read_in_full_from_the_docstring():
    assert len(drawn()) == 20
    assert drawn()["RefusedError"] == "ResolveError"
    assert drawn()["AttachedError"] == "TenterhookError"


@pytest.mark.parametrize("name", defined())
def test_the_facade_offers_every_error(name):
    assert getattr(tenterhook, name) is getattr(errors, name)
    assert name in tenterhook.__all__


@pytest.mark.parametrize(
    "place, text",
    [
        ({}, "no"),
        ({"hook": "clip"}, "hook 'clip': no"),
        ({"point": "grad"}, "at grad: no"),
        ({"target": "head.weight"}, "on 'head.weight': no"),
        ({"rank": 0}, "(rank 0): no"),
        ({"remedy": "answer yes"}, "no\n  remedy: answer yes"),
        (
            {"remedy": "answer yes", "rank": 3, "target": "head.weight", "point": "grad", "hook": "clip"},
            "hook 'clip' at grad on 'head.weight' (rank 3): no\n  remedy: answer yes",
        ),
    ],
)
def test_the_text_says_place_fact_and_remedy(place, text):
    assert str(TenterhookError("no", **place)) == text


def test_what_does_not_apply_is_none():
    error = PlanError("no", hook="clip")
    assert (error.fact, error.hook) == ("no", "clip")
    assert (error.target, error.point, error.rank, error.remedy) == (None, None, None, None)


def test_located_fills_in_what_was_not_known():
    error = PlanError("no")
    assert error.located(hook="clip", rank=0) is error
    assert str(error) == "hook 'clip' (rank 0): no"


def test_located_keeps_what_was_known():
    error = HookError("no", hook="inner", rank=0).located(hook="outer", rank=7, target="head")
    assert str(error) == "hook 'inner' on 'head' (rank 0): no"


def test_an_error_survives_pickling():
    error = NoMatchError("no", hook="clip", remedy="answer yes").located(target="head", rank=1)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is NoMatchError
    assert str(back) == str(error) == "hook 'clip' on 'head' (rank 1): no\n  remedy: answer yes"
    assert (back.hook, back.target, back.rank, back.remedy) == ("clip", "head", 1, "answer yes")


def test_the_first_nonfinite_producer_comes_with_its_inputs():
    error = NonFiniteError("made a NaN", inputs=(1, 2), target="head")
    assert error.inputs == (1, 2)
    assert str(error) == "on 'head': made a NaN"
    assert NonFiniteError("made a NaN").inputs == ()


def test_nearest_has_the_best_first():
    assert nearest("grad_finale", ["grad", "grad_final", "grad_input", "value"])[0] == "grad_final"


def test_nearest_gives_no_more_than_asked():
    names = [f"layer{i}" for i in range(10)]
    assert len(nearest("layer", names)) == 3
    assert len(nearest("layer", names, count=1)) == 1


def test_nearest_falls_back_to_names_that_contain_it():
    assert nearest("*.attn", ["embed", "blocks.0.attn.out_proj", "head"]) == ["blocks.0.attn.out_proj"]


@pytest.mark.parametrize("name", ["zzz", "", "**", "."])
def test_nearest_is_empty_where_nothing_is_near(name):
    assert nearest(name, ["embed", "head"]) == []
