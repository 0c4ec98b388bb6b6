"""Check that each code of the doctor has one rule, and that the remedies of the rules work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import tenterhook as th
import tenterhook.doctor
from tenterhook.audit.imbalance import TITLES
from tenterhook.doctor.findings import CODES
from tenterhook.doctor.rules.registry import RULES, Subject, Words, rule
from tenterhook.doctor.rules.silent.never_fired import _call_of

DOCTOR = Path(tenterhook.doctor.__file__).parent


def test_every_code_has_a_rule() -> None:
    assert RULES.keys() == CODES.keys()


def test_a_second_rule_for_a_code_is_refused() -> None:
    with pytest.raises(ValueError, match="TH202 already has a rule"):
        rule("TH202")(lambda about: Words("a", "b"))
    with pytest.raises(ValueError, match="TH999 is not one of the doctor's codes"):
        rule("TH999")(lambda about: Words("a", "b"))
    assert RULES.keys() == CODES.keys()


def test_only_one_file_names_a_code_besides_the_list_of_codes() -> None:
    written: dict[str, list[str]] = {}
    for path in DOCTOR.rglob("*.py"):
        if path.name != "findings.py":
            for code in re.findall(r"\"(TH\d{3})\"", path.read_text()):
                written.setdefault(code, []).append(path.relative_to(DOCTOR).as_posix())
    assert {code for code, files in written.items() if len(files) > 1} == set()
    assert written.keys() | TITLES.keys() == CODES.keys()


def test_only_rules_create_findings() -> None:
    makers = [p.name for p in DOCTOR.rglob("*.py") if re.search(r"(?<!def )\b(finding|Finding)\(", p.read_text())]
    assert sorted(makers) == ["findings.py", "registry.py"]


def test_a_quoting_rule_has_no_texts_of_its_own() -> None:
    quoted = RULES["TH106"]
    assert quoted(Subject()) is None
    assert quoted.quote(Subject(place="a.py:1"), "no attribute", "x").code == "TH106"


def test_the_remedy_for_an_optimizer_that_never_steps_is_a_step() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for layer in model)
    hook = th.Hook("seen", on="optimizer.second", at="step_pre", do=lambda optimizer: None)
    rig = th.attach(model, hook, optimizer={"first": first, "second": second}, clock="first")
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        first.step()
    (found,) = th.check(rig)
    assert (found.code, found.target) == ("TH213", "optimizer.second")
    assert found.evidence == "the hook was due 2 times but never fired on 1 of 1 targets; the optimizer did not step"
    assert found.remedy == "optimizer.step()  # after loss.backward()"


def test_a_remedy_replaces_the_selector_and_no_other_word() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    with pytest.raises(AttributeError), th.examine() as exam:
        handle = model[0].register_forward_hook(lambda module, args, out: module.register_hook(print))
        model(torch.ones(2, 3))
    handle.remove()
    assert (exam.findings[0].code, exam.findings[0].target) == ("TH106", "0")
    assert "module.register_full_backward_hook(fn)  # gradients of a module's inputs" in exam.findings[0].remedy
    with pytest.raises(RuntimeError), th.examine() as exam:
        model[0].register_full_backward_hook(lambda *_: None)
        nn.functional.relu_(model[0](torch.ones(2, 3)))
    assert (exam.findings[0].code, exam.findings[0].target) == ("TH508", "0")
    assert exam.findings[0].remedy.startswith('th.hook(model, fn, on="0", at="grad_output")')


@pytest.mark.parametrize("parametrized", [False, True])
def test_the_remedy_for_a_frozen_parameter_finds_the_parameter(parametrized: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    if parametrized:
        nn.utils.parametrizations.weight_norm(model[0])
    parameter = model[0].parametrizations.weight.original1 if parametrized else model[0].weight
    with th.examine() as exam:
        parameter.register_hook(lambda grad: None)
        parameter.requires_grad_(False)
        model(torch.ones(2, 3)).sum().backward()
    assert exam.findings[0].code == "TH203"
    exec(exam.findings[0].remedy, {"model": model})
    assert parameter.requires_grad


@pytest.mark.parametrize(
    "name, call", [(".", "out = model(x)"), ("0", "x = self[0](x)"), ("a.1.b", "x = self.a[1].b(x)")]
)
def test_the_remedy_for_a_module_that_never_ran_is_python(name: str, call: str) -> None:
    assert _call_of(name) == call
