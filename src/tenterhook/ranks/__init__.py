"""Communicate between ranks. No other package calls collectives or uses the store.

Every rank of a group must call the same functions in the same order. `attach` determines which of these functions each
step calls. In a group of one rank, these functions do not communicate.
"""

from tenterhook.ranks.board import Board as Board
from tenterhook.ranks.consensus import all_equal as all_equal
from tenterhook.ranks.consensus import all_or_none as all_or_none
from tenterhook.ranks.consensus import any_of as any_of
from tenterhook.ranks.consensus import distinct_texts as distinct_texts
from tenterhook.ranks.exchange import Header as Header
from tenterhook.ranks.exchange import agree as agree
from tenterhook.ranks.group import RankGroup as RankGroup
from tenterhook.ranks.merging import merge as merge
from tenterhook.ranks.world import launch_ranks as launch_ranks
from tenterhook.ranks.world import rank as rank
from tenterhook.ranks.world import warn_once as warn_once
from tenterhook.ranks.world import world_size as world_size
