"""The end of a step: what was measured is merged over ranks, made into numbers, and looked at for trips."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from tenterhook import ranks
from tenterhook.errors import RanksError
from tenterhook.plan import Plan
from tenterhook.record import Recorder, StepTable
from tenterhook.resolve.agreement import digest_of
from tenterhook.resolve.sharding import GLOBAL
from tenterhook.resolve.targets import device_of
from tenterhook.rig.installer import Rigging
from tenterhook.rig.run_files import why
from tenterhook.rig.runtime.attached_hook import LiveHook


class Ending:
    def __init__(self, plan: Plan, rigging: Rigging, recorder: Recorder) -> None:
        self._digest = digest_of(plan)
        self._rigging = rigging
        self._recorder = recorder

    def __call__(self) -> None:
        rigging, clock, trips = self._rigging, self._rigging.clock, []
        for live in rigging.active:
            live.count_due()
        self._make_whole([live for live in rigging.active if live.claim.merges and live.partials is not None])
        for live in list(rigging.lives.values()):
            live.state.commit()
            if live.partials is not None and 1 in live.partials.fired:
                trips += self._report(live)
        self._recorder.flush(clock.step)
        flights = self._recorder.flights
        # Ranks decide the same, whoever of them has a flight recorder.
        waited_for = flights or clock.shared or any(live.hook.when.after_trip for live in rigging.lives.values())
        if trips and waited_for and bool(torch.stack([t.any() for _, t in trips]).any()):
            clock.tripped = clock.step
            for flight in flights:
                flight.trip(why(trips))
        clock.end_step()

    @torch.no_grad()
    def _make_whole(self, lives: list[LiveHook]) -> None:
        """Merge over ranks what observers measured of parts, all of them at once. Each rank does, or none."""
        model, parts = self._rigging.model(), [live.partials for live in lives if live.partials is not None]
        if not parts or model is None:
            return
        device = device_of(model)
        given = [one.part(device) for one in parts]
        how = [{n: p.merge for n, p in one.declared.items()} | {"fired": "max"} for one in parts]
        # The plan goes along: where ranks have come to have different ones, their numbers would be mixed up here.
        *merged, plans = ranks.merge([*given, {"plan": self._digest}], [*how, {"plan": "max"}])
        if not torch.equal(plans["plan"], self._digest):
            raise RanksError("the ranks have come to have different plans", remedy="change the plan on every rank")
        for one, whole in zip(parts, merged, strict=True):
            one.take_whole(whole)

    @torch.no_grad()
    def _report(self, live: LiveHook) -> list[tuple[LiveHook, Tensor]]:
        """Turn a two-phase observer's merged partial results into numbers."""
        assert live.partials is not None
        fired = bytearray(live.partials.fired)
        merged = live.partials.take()
        if merged is None:
            return []
        step, names = self._rigging.clock.step, live.names
        device = merged["fired"].device
        if live.reads_only and live.width:
            columns = partial(live.call, merged, {})
            self._put(live, StepTable(step, names, fired, columns, width=live.width, device=device))
            return []
        state = live.state.pack(device)
        try:
            made = dict(live.call(merged, state))
        except Exception as error:
            live.failed(live.sites[0], error)
            return []
        trip = made.pop("trip", None)
        live.width = len(made)
        self._put(live, StepTable(step, names, fired, lambda: made, width=live.width, device=device))
        return [(live, trip)] if trip is not None and live.definition.trigger else []

    def _put(self, live: LiveHook, table: StepTable) -> None:
        self._recorder.add_table(live.hook.id, table, shared=live.claim.merges or live.hook.at in GLOBAL)
