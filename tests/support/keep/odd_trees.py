"""Put odd values into trees of dicts and lists, such as plans and headers."""

from __future__ import annotations

from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 9, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0,
           1e308, 5e-324, float("inf"), float("nan"))  # fmt: skip
WORDS = ("", "a", "x" * 300, "\0", "\x7f", "\ud800", "\ufeff", "é", "e\u0301", "\U0001f600", "\u2028", "a\nb", '"',
         "\\", "**", "***", "!", "!**", "type:", "type:Linear", ":p", "..", "../x", "os.system", "rank0", "cpu",
         "float32", "muted", "true", "1")  # fmt: skip
ODD = (*NUMBERS, *WORDS, None, True, False, [], {}, [[]], {"": {}}, [None] * 40)
#: keys of plans
FIELDS = ("id", "on", "at", "do", "when", "expect", "on_error", "every", "start", "stop", "phase", "after_trip", "hook",
          "hooks", "tenterhook", "max")  # fmt: skip
_KEYS = (*WORDS, *FIELDS)


def bend(tree: Any, r: Random) -> None:
    """Change one place of a tree."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        if not keys:
            _grow(tree, r, _fresh(r.choice(ODD)))
            return
        key = r.choice(keys)
        if not isinstance(tree[key], dict | list) or r.random() < 0.2:
            break
        tree = tree[key]
    how = r.randrange(8)
    if how == 2 and isinstance(tree[key], str):
        tree[key] = bent_word(tree[key], r)
    elif how == 3 and isinstance(tree[key], int | float):
        tree[key] += r.choice((1, -1, 2**32, 2**53))
    elif how < 4:
        tree[key] = _fresh(r.choice(ODD))
    elif how == 4:
        for _ in range(r.choice((1, 1, 2, 14, 40))):
            tree[key] = [tree[key]] if r.random() < 0.5 else {"a": tree[key]}
    elif how == 5:
        del tree[key]
    elif how == 6:
        _grow(tree, r, _fresh(tree[key]))
    else:
        other = r.choice(keys)
        tree[key], tree[other] = tree[other], tree[key]


def bent_word(word: str, r: Random) -> str:
    at = r.randint(0, len(word))
    return word[:at] + r.choice((*WORDS, chr(r.randrange(0x3000)))) + word[at + r.randrange(3) :]


def _grow(tree: Any, r: Random, value: Any) -> None:
    if isinstance(tree, dict):
        tree[r.choice(_KEYS)] = value
    else:
        tree.insert(r.randint(0, len(tree)), value)


def _fresh(value: Any) -> Any:
    """Copy a value, so that no object appears twice in a tree."""
    if isinstance(value, dict):
        return {key: _fresh(inner) for key, inner in value.items()}
    return [_fresh(inner) for inner in value] if isinstance(value, list) else value
