"""Mutate plans in JSON and TOML: bytes, tokens, trees, and plans generated from the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import tenterhook as th
from tenterhook.plan import POINTS
from tests.support.keep.odd_trees import FIELDS, ODD, bend, bent_word

CORPUS = Path(__file__).parents[2] / "keep" / "corpus"

TOKENS = (*"{}[]:,=.#\n\"'\\", '"""', "'''", "[[", "]]", "[[hook]]", "[hook]", '"do":{}', '"id":', "null", "true",
          "nan", "-inf", "1e999", "-", "0x1f", "1_0", "9" * 400, "2020-01-01", "07:32:00", "\\u0000", "\\ud800",
          "\\U00110000", "\\x", "/*", "[" * 20, '{"a":' * 20, "\0", "\ufeff", "\r", "\x0b", "\x7f", "\u2028",
          "é")  # fmt: skip
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[-+.\w]++|[ \t]++|.', re.DOTALL)


def invented(r: Random) -> dict[str, Any]:
    """Generate a plan from the schema, with an odd value now and then."""

    def some(*usual: Any) -> Any:
        return r.choice(ODD) if r.random() < 0.04 else r.choice(usual)

    def hook() -> dict[str, Any]:
        names = ("**", "head", "blocks.*", "**.weight", "type:Linear", "a:p", ["**", "!**.bias"], ["x"])
        params = {r.choice(("k", "é", "a\n")): some([1], {"a": None}, 2.5, "t")}
        made = {"id": some("a", "b", "c.d", "e#1"), "on": some(*names), "at": some(*POINTS),
                "do": some("stats", {"scale": {"by": some(1, 0.5)}}, {"mine": params})}  # fmt: skip
        if r.random() < 0.4:
            made["when"] = {r.choice(("every", "start", "stop", "after_trip")): some(1, 7, 10), "phase": some("any")}
        if r.random() < 0.3:
            made[r.choice(("expect", "on_error"))] = some(1, "mute", None)
        return made

    return {"tenterhook": some(1), "hooks": [hook() for _ in range(r.choice((0, 1, 1, 1, 2)))]}


def as_json(tree: Any, r: Random) -> str:
    return json.dumps(tree, ensure_ascii=r.random() < 0.5, separators=r.choice(((",", ":"), (", ", ": "))))


def as_toml(tree: dict[str, Any], r: Random) -> str:
    hooks = tree.get("hooks")
    lines = [_line(k, v) for k, v in tree.items() if k != "hooks" or not isinstance(v, list)]
    for hook in hooks if isinstance(hooks, list) else ():
        lines.append("[[hook]]")
        lines += [_line(k, v) for k, v in hook.items()] if isinstance(hook, dict) else [_inline(hook)]
    return "\n".join(lines)


def _line(key: str, value: Any) -> str:
    return f"{key if key in FIELDS else json.dumps(key)} = {_inline(value)}"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(_line(k, v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


class PlanMutants:
    """Make texts from the corpus."""

    def __init__(self, r: Random, kind: str) -> None:
        self._random = r
        self._reader: Callable[[str | bytes], th.Plan] = th.Plan.from_json if kind == "json" else th.Plan.from_toml
        self._write = as_json if kind == "json" else as_toml
        self._seeds = [path.read_bytes() for path in sorted(CORPUS.glob(f"*.{kind}")) if not is_state(path)]
        self._tokens = [_TOKEN.findall(seed.decode("utf-8", "replace")) for seed in self._seeds]
        self._trees = [path.read_bytes() for path in sorted(CORPUS.glob("plan-*.json"))]

    def mutant(self) -> str | bytes:
        r = self._random
        how = r.random()
        if how < 0.3:
            return self._of_bytes()
        if how < 0.6:
            text = self._of_tokens()
        elif how < 0.8:
            tree = json.loads(r.choice(self._trees))
            for _ in range(r.choice((1, 1, 2, 4))):
                bend(tree, r)
            text = self._write(tree, r)
        else:
            text = self._write(invented(r), r)
        return text if r.random() < 0.5 else text.encode("utf-8", "surrogatepass")

    def _of_bytes(self) -> str | bytes:
        r = self._random
        raw = bytearray(r.choice(self._seeds))
        for _ in range(r.choice((1, 1, 2, 5))):
            at, length = r.randint(0, len(raw)), r.choice((0, 1, 1, 4, 30))
            how = r.randrange(5)
            if how == 0 and at < len(raw):
                raw[at] ^= 1 << r.randrange(8)
            elif how == 1:
                raw[at:at] = r.randbytes(length)
            elif how == 2:
                del raw[at : at + length]
            elif how == 3:
                raw[at : at + length] *= 2 if r.random() < 0.995 else 3000
            else:
                other = r.choice(self._seeds)
                start = r.randrange(len(other))
                raw[at : at + length] = other[start : start + r.choice((1, 8, 60))]
        return bytes(raw) if r.random() < 0.8 else raw.decode("utf-8", "surrogateescape")

    def _of_tokens(self) -> str:
        r = self._random
        tokens = list(r.choice(self._tokens))
        for _ in range(r.choice((1, 1, 2, 3))):
            at, other = r.randrange(len(tokens)), r.randrange(len(tokens))
            how = r.randrange(5)
            if how == 0:
                tokens[at] = r.choice(TOKENS)
            elif how == 1:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif how == 2:
                tokens[at] *= r.choice((0, 2, 3, 200))
            elif how == 3:
                tokens[at:at] = tokens[other : other + r.choice((1, 4, 9))]
            else:
                tokens[at] = bent_word(tokens[at], r)
        return "".join(tokens)

    def read(self, text: str | bytes) -> th.Plan:
        return self._reader(text)

    def use(self, text: str | bytes, plan: th.Plan) -> None:
        """Check, for one plan in four, that writing and reading it returns an equal plan; long texts are left out."""
        if self._random.random() < 0.75 or len(text) > 20_000:
            return
        try:
            canonical = plan.to_json()
            again = th.Plan.from_json(canonical)
        except th.TenterhookError as error:
            raise AssertionError("a plan that was accepted cannot be written and read") from error
        assert again == plan and again.to_json() == canonical

    @staticmethod
    def size(text: str | bytes) -> int:
        return len(text)

    @staticmethod
    def word(text: str | bytes, error: th.TenterhookError | None) -> str:
        return "accepted" if error is None else "refused"

    @staticmethod
    def written(text: str | bytes) -> bytes:
        return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def is_state(path: Path) -> bool:
    return path.name.startswith("state-")
