"""Communicate between ranks. No other package calls collectives or uses the store.

Every rank must call the same functions in the same order. `attach` determines which of these functions each step calls.
In a single-process run, these functions do not communicate.
"""

from tenterhook.ranks.board import Board as Board
from tenterhook.ranks.consensus import all_equal as all_equal
from tenterhook.ranks.consensus import all_or_none as all_or_none
from tenterhook.ranks.consensus import any_of as any_of
from tenterhook.ranks.consensus import distinct_texts as distinct_texts
from tenterhook.ranks.consensus import raise_on_all as raise_on_all
from tenterhook.ranks.merging import merge as merge
from tenterhook.ranks.rendezvous import barrier as barrier
from tenterhook.ranks.world import launch_ranks as launch_ranks
from tenterhook.ranks.world import rank as rank
from tenterhook.ranks.world import sum_over_ranks as sum_over_ranks
from tenterhook.ranks.world import warn_once as warn_once
from tenterhook.ranks.world import world_size as world_size
