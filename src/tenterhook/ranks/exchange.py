"""Begin each exchange of a step with a header, so that ranks that do different things are noticed before they mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenterhook.errors import RanksError, TenterhookError
from tenterhook.ranks.consensus import distinct_texts, raise_on_all
from tenterhook.ranks.group import RankGroup


class Header(NamedTuple):
    """The facts that all ranks must have in common before they exchange data."""

    #: the number of the step
    step: int
    #: how many exchanges of this step came before
    exchange: int
    #: a digest of the plan and of the hooks that exchange data in this step
    hooks: int


class Agreed(NamedTuple):
    """Holds the result of an exchange."""

    #: True if at least one rank has set the flag
    flag: bool
    #: the maximum of each number over the ranks
    highest: list[int]


def agree(
    group: RankGroup,
    header: Header,
    error: TenterhookError | None = None,
    *,
    flag: bool = False,
    numbers: Sequence[int] = (),
) -> Agreed:
    """Compare the headers of all ranks, and raise the error of one rank on every rank.

    One collective of 64 bytes does both. It also carries the numbers, of which every rank gives equally many.

    Raises:
        RanksError: The headers differ. Every rank raises it.
    """
    if group.is_alone:
        if error is not None:
            raise error
        return Agreed(flag, list(numbers))
    failed = group.size - group.position if error is not None else 0
    found = group.max_of([*header, *(-one for one in header), failed, int(flag), *numbers])
    highest, lowest = found[:3], [-one for one in found[3:6]]
    if highest != lowest:
        _raise_difference(group, header)
    if found[6]:
        raise_on_all(group, error, first=group.size - found[6])
    return Agreed(bool(found[7]), found[8:])


def _raise_difference(group: RankGroup, header: Header) -> None:
    """Raise an error that names two ranks and what differs between them."""
    texts = distinct_texts(group, " ".join(map(str, header)))
    headers = {by: Header(*map(int, text.split())) for by, text in texts.items()}
    (one, mine), (other, theirs), *_ = headers.items()
    if mine.step != theirs.step:
        raise RanksError(
            f"the ranks are at different steps: rank {one} is at step {mine.step}, but rank {other} is at step "
            f"{theirs.step}",
            remedy="let every rank make the same number of optimizer steps, and load the same checkpoint on every rank",
        )
    if mine.hooks != theirs.hooks:
        raise RanksError(
            f"the ranks have different hooks: those of rank {one} differ from those of rank {other}",
            remedy="add, remove, mute and unmute hooks on every rank",
        )
    raise RanksError(
        f"the ranks are at different places of step {mine.step}: rank {one} at exchange {mine.exchange}, rank {other} "
        f"at exchange {theirs.exchange}",
        remedy="let every rank step the same optimizers in the same order",
    )
