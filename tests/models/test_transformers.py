"""Checks on real models that every target resolves and fires, and that observers change nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tenterhook as th
from benchmarks.noninterference import compare
from tests.support.models import zoo


@pytest.mark.parametrize("name", zoo.MODELS)
def test_observing_every_point_changes_no_bit(name):
    """Run 3 steps; `python benchmarks/noninterference.py` runs 200."""
    tensors, fired = compare(name, 3)
    assert tensors > 20 and fired > 500


@pytest.mark.parametrize("name", zoo.MODELS)
def test_watch_gives_every_gradient_norm(name):
    model, optimizer = zoo.build(name)
    rig = th.watch(model, optimizer)
    zoo.train(name, model, optimizer, 1)
    values = rig.values("grads")
    for target, p in model.named_parameters():
        assert values[target]["norm"] == pytest.approx(p.grad.norm().item(), rel=1e-5)
    assert len(values) == len(list(model.parameters()))
    assert "grads: step 0" in str(rig) and "<table>" in rig._repr_html_()


def test_tied_embeddings_are_one_target_under_two_names():
    model, optimizer = zoo.build("gpt2")
    fired: list[Tensor] = []
    for name in ("transformer.wte.weight", "lm_head.weight"):
        with th.attach(model, [th.Hook("h", on=name, at="grad", do=fired.append)], optimizer=optimizer) as rig:
            zoo.train("gpt2", model, optimizer, 1)
            assert [s.name for s in rig.ledger["h"].values()] == ["transformer.wte.weight"]
            assert rig.ledger["h"]["lm_head.weight"].fired == 1
    assert len(fired) == 2


def test_steering_one_block_of_llama_equals_a_raw_hook():
    vector = torch.randn(16)
    logits = []
    for kind in ("raw", "ours"):
        model, _ = zoo.build("llama")
        if kind == "raw":
            model.model.layers[1].register_forward_hook(lambda m, args, out: out + vector)
        else:
            th.hook(model, lambda t: t + vector, on="model.layers.1", at="output")
        logits.append(model(**zoo.batch("llama", 0)).logits)
    assert torch.equal(*logits)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_of_transformers_sees_the_same_gradients(reentrant):
    runs = []
    for checkpointing in (False, True):
        model, optimizer = zoo.build("gpt2")
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        rig = th.attach(model, [
            th.Hook("out", on="transformer.h.*", at="grad_output", do=th.stats()),
            th.Hook("mlp", on="transformer.h.*.mlp", at="output", do=th.scale(0.5)),
        ], optimizer=optimizer)  # fmt: skip
        torch.manual_seed(1)
        zoo.train("gpt2", model, optimizer, 2)
        runs.append((rig.values("out"), [p.detach().clone() for p in model.parameters()]))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))


def test_a_model_output_is_rebuilt_with_its_own_class():
    model, _ = zoo.build("gpt2")
    bare = model(**zoo.batch("gpt2", 0))
    th.hook(model, lambda t: t * 2, on=".", at="output")
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match="the tensors in an object of type DynamicCache are not seen"):
        doubled = model(**zoo.batch("gpt2", 0))
    assert type(doubled) is type(bare)
    assert doubled["loss"] is doubled.loss
