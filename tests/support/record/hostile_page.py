"""Judge a report of a hostile run folder: a name must not become an element, an attribute, a style or a script."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from html.parser import HTMLParser

from tenterhook.view.app_files import app_file
from tenterhook.view.report import page_of
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


def judge_page(page: str, case: Case) -> Iterator[str]:
    """Yield everything in a report that comes from a name, except as text or as data."""
    for known in ("app.js", "app.css"):
        page = page.replace(app_file(known).decode().replace("</script", "<\\/script"), "", 1)
    found, made = Page(), Page()
    found.feed(page)
    made.feed(page_of("", b""))
    if found.elements != made.elements:
        more = [one for one in found.elements if one not in made.elements]
        yield f"the elements are not those of the page; others are {more[:3]}"
    for place, text in found.texts.items():
        if place not in ("data", "title") and text.strip():  # this includes every address that a name contains
            yield f"the {place or 'page'} element has a text that is not a part of the page: {text.strip()!r:.60}"
    try:
        text = gzip.decompress(base64.b64decode(found.texts.get("data", ""), validate=True)).decode()
        runs = json.loads(text)["runs"]
    except (ValueError, OSError) as error:
        yield f"the data of the page is not JSON: {str(error)[:80]}"
        return
    if found.texts.get("title", "").split() != ", ".join(run["title"] for run in runs).split():
        yield f"the title is {found.texts.get('title', '')!r:.60}"
    if SECRET in text and not case.shared:
        yield "the page shows a file outside the folder"
    shown = {target for run in runs for target in run["targets"]}
    single = {r[3] for r in case.rows or () if r[5] is not None and r[2] != "tenterhook"}
    if not single <= shown:
        yield f"targets are missing: {sorted(map(str, single - shown))[:2]!r:.100}"
