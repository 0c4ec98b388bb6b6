"""Targets are sorted as the layers ran, and those of a module are together."""

from __future__ import annotations

import random

from tenterhook.record import Layer
from tenterhook.view.data.model_order import model_order, natural_key


def test_targets_are_in_the_order_of_the_layers():
    layers = [
        Layer(".", "M", ["scale"]),
        Layer("emb", "Embedding", ["emb.weight"]),
        Layer("blocks", "ModuleList"),
        Layer("blocks.1", "Block"),
        Layer("blocks.1.fc", "Linear", ["blocks.1.fc.weight", "blocks.1.fc.bias"]),
        Layer("blocks.0", "Block"),
        Layer("head", "Linear", ["head.weight"]),
    ]
    names = ["head.weight", "blocks.0", "blocks.1.fc.bias", "emb.weight", "blocks.1.fc", "blocks.1.fc.weight", ".",
             "scale", "blocks.1.fc:tap", "extra.10", "extra.9", "blocks.1"]  # fmt: skip
    assert model_order(names, layers) == [
        ".", "scale", "emb.weight", "blocks.1", "blocks.1.fc", "blocks.1.fc.weight", "blocks.1.fc.bias",
        "blocks.1.fc:tap", "blocks.0", "head.weight", "extra.9", "extra.10",
    ]  # fmt: skip


def test_the_targets_below_each_module_are_together():
    random.seed(0)
    for _ in range(200):
        names = sorted({".".join(random.choices("ab12", k=random.randint(1, 4))) for _ in range(random.randint(1, 40))})
        layers = [Layer(name, "M") for name in random.sample(names, k=random.randint(0, len(names)))]
        ordered = model_order(names, layers)
        assert sorted(ordered) == names
        for prefix in {name[:end] for name in names for end in range(1, len(name), 2)}:
            inside = [place for place, name in enumerate(ordered) if name == prefix or name.startswith(prefix + ".")]
            assert not inside or inside == list(range(inside[0], inside[-1] + 1)), (prefix, ordered, layers)


def test_a_name_with_very_many_parts_is_sorted():
    names = ["a" + ".a" * 100_000, "a", ".", "b:c.d"]
    assert model_order(names, []) == [".", "a", names[0], "b:c.d"]


def test_numbers_in_names_are_sorted_by_their_size():
    names = ["b.10", "b.9", "b.010", "b", "a.1.c", "a.01.b", "a.0", "a", "²", "b.9.x", "1" * 5000, "2"]
    assert sorted(names, key=natural_key) == [
        "2", "1" * 5000, "a", "a.0", "a.01.b", "a.1.c", "b", "b.9", "b.9.x", "b.010", "b.10", "²",
    ]  # fmt: skip
