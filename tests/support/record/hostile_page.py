"""Judge a report of a hostile run folder: a name must not become an element, an attribute, a style or a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import plotly.offline

import tenterhook.view
from tests.support.record.hostile_parts import SECRET, Case


class Page(HTMLParser):
    """Collect the elements of a page, its title and the text of its data."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        safe = [f"{k}={'' if k == 'content' else v}" for k, v in attrs]
        self.elements.append((tag, tuple(safe)))
        self._inside = given.get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._inside] = self.texts.get(self._inside, "") + data


def asset(name: str) -> str:
    """Return a file from which a report is made."""
    return (Path(tenterhook.view.__file__).parent / name).read_text(encoding="utf-8")


def judge_page(page: str, case: Case) -> Iterator[str]:
    """Yield everything in a report that comes from a name, except as text or as JSON."""
    for known in (asset("report.js"), asset("report.css"), plotly.offline.get_plotlyjs()):
        page = page.replace(known.replace("\r\n", "\n").replace("\r", "\n"), "", 1)
    found, made = Page(), Page()
    found.feed(page)
    made.feed(asset("report.html"))
    if found.elements != made.elements:
        more = [one for one in found.elements if one not in made.elements]
        yield f"the elements are not those of the page; others are {more[:3]}"
    for place, text in found.texts.items():
        if place not in ("data", "title") and text.strip():  # this includes every address that a name contains
            yield f"the {place or 'page'} element has a text that is not a part of the page: {text.strip()!r:.60}"
    try:
        data = json.loads(found.texts.get("data", ""))
    except ValueError as error:
        yield f"the data of the page is not JSON: {str(error)[:80]}"
        return
    if found.texts.get("title", "").split() != ", ".join(run["title"] for run in data).split():
        yield f"the title is {found.texts.get('title', '')!r:.60}"
    if SECRET in found.texts["data"] and not case.shared:
        yield "the page shows a file outside the folder"
    shown = {target for run in data for matrix in run["matrices"] for target in matrix["targets"]}
    single = {r[3] for r in case.rows or () if r[5] is not None and r[2] != "tenterhook"}
    if not single <= shown:
        yield f"targets are missing: {sorted(map(str, single - shown))[:2]!r:.100}"
