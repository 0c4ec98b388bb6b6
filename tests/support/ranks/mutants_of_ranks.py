"""List mutants of the code for several ranks, and of the modifiers that change many gradients at once."""

from __future__ import annotations

from tests.support.record.mutant import Mutant

ARRIVALS, GROUP, EXCHANGE = "ranks/arrivals.py", "ranks/group.py", "ranks/exchange.py"
AGREEMENT, GROUPING, REPLICAS = "resolve/agreement.py", "resolve/grouping.py", "resolve/replicas.py"
LAYOUT, STEP, TOGETHER = "rig/step/layout.py", "rig/step/agreement.py", "rig/step/modify_together.py"
SHARDED, SHARDING, CALLING = "rig/step/sharded_modifiers.py", "resolve/sharding.py", "rig/points/calling.py"

COUNTED, FAULTS = ("tests/ranks/test_arrivals.py",), ("tests/ranks/test_faults.py",)
GROUPS, CHANGED = ("tests/ranks/test_groups.py",), ("tests/rig/test_modify_together.py",)
LATE = ("tests/ranks/test_cells.py",)
REPLICA_CHECK, SKEW, DIGEST = "rig/step/replica_check.py", "rig/step/skew.py", "actions/replicas.py"
COMPARED, SPREAD = ("tests/ranks/test_replicas.py",), ("tests/ranks/test_skew.py",)
DIGESTS, ENCODED = ("tests/actions/test_replicas.py",), ("tests/actions/test_skew.py",)

OF_MEETINGS = [
    Mutant(
        "full-block-not-counted",
        ARRIVALS,
        "            self._add(level + 1, block, step)",
        "            pass",
        COUNTED,
        "the ranks of a large group wait forever",
    ),
    Mutant(
        "arrival-not-taken-back",
        ARRIVALS,
        "        self._add(0, position, -1)",
        "        pass",
        COUNTED,
        "a meeting after a failed one ends before all ranks are there",
    ),
    Mutant(
        "missing-rank-not-found",
        ARRIVALS,
        "if not self._is_here(below, one)",
        "if self._is_here(below, one)",
        COUNTED,
        "an error names the ranks that are there",
    ),
    Mutant(
        "error-of-the-store",
        GROUP,
        "            made = self._without_store(error)",
        "            raise",
        COUNTED,
        "an error of the store is raised as it is",
    ),
    Mutant(
        "silent-detach",
        GROUP,
        '            store().set(f"{self._key}/left", str(self.rank))',
        "            pass",
        FAULTS,
        "a rank that detaches alone is not named",
    ),
]
OF_HEADERS = [
    Mutant(
        "headers-not-compared",
        EXCHANGE,
        "    if highest != lowest:",
        "    if False:",
        FAULTS,
        "ranks at different steps merge their numbers",
    ),
    Mutant(
        "error-on-one-rank",
        EXCHANGE,
        "    if found[6]:",
        "    if False:",
        FAULTS,
        "an error of one rank is not raised on the others",
    ),
    Mutant(
        "join-not-refused",
        STEP,
        "        if _joins(environment.model.root()):",
        "        if False:",
        FAULTS,
        "a modifier waits inside join for ranks that make no step",
    ),
]
OF_LAYOUTS = [
    Mutant(
        "late-layout",
        LAYOUT,
        "            if self._read() != self._decided:",
        "            if False:",
        LATE,
        "a model that is sharded after attach is measured on each rank alone",
    ),
    Mutant(
        "replicas-not-checked",
        LAYOUT,
        "            hook.resolved = merge_parts(hook.resolved, parts)",
        "            pass",
        GROUPS,
        "experts of the same name are taken for replicas",
    ),
    Mutant(
        "gradients-not-compared",
        REPLICAS,
        " | _differing_norms(group, known, plain)",
        "",
        GROUPS,
        "parts with equal values at first are taken for replicas",
    ),
    Mutant(
        "one-mesh-counted",
        SHARDING,
        "(first != EVERY and first not in mesh.mesh)",
        "first not in mesh.mesh",
        GROUPS,
        "experts on other meshes are not counted",
    ),
    Mutant(
        "replicas-counted-twice",
        AGREEMENT,
        "has_replicas=merges and computed_in_shards",
        "has_replicas=False",
        FAULTS,
        "a plain parameter beside shards is counted once for each rank",
    ),
    Mutant(
        "several-meshes",
        AGREEMENT,
        "    _refuse_meshes(group, hooks, resolution.view)\n",
        "",
        GROUPS,
        "the gradients of one mesh are reported on the ranks of another",
    ),
    Mutant(
        "split-optimizers",
        AGREEMENT,
        "    _refuse_optimizers(group, hooks)\n",
        "",
        GROUPS,
        "a norm covers only the parameters of one rank's optimizer",
    ),
    Mutant(
        "outer-ddp",
        GROUPING,
        "(*inside, *private.ddp_around(model))",
        "inside",
        GROUPS,
        "the ranks of a DDP module around the model are not found",
    ),
    Mutant(
        "namesakes",
        GROUPING,
        "    return _part_of(group, what, model)",
        "    return group",
        GROUPS,
        "an actor and a critic with the same names are one model",
    ),
]
OF_MODIFIERS = [
    Mutant(
        "shared-memory",
        TOGETHER,
        "    return len(set(places)) == len(places)",
        "    return True",
        CHANGED,
        "gradients that share memory are changed twice",
    ),
    Mutant(
        "mixed-precision",
        TOGETHER,
        " or (torch.float64 in dtypes and len(dtypes) > 1)",
        "",
        CHANGED,
        "norms are rounded in another way than one by one",
    ),
    Mutant(
        "emitted-number-changes",
        "record/recorder.py",
        "torch.float64, copy=True",
        "torch.float64",
        CHANGED,
        "a number that a hook emitted is changed by a later hook",
    ),
    Mutant(
        "no-gradients",
        SHARDED,
        "    if not given.sites:",
        "    if False:",
        FAULTS,
        "a merged modifier fails in a step without gradients",
    ),
]

OF_COMPARISONS = [
    Mutant(
        "broken-connection-kept",
        GROUP,
        "        if not self._key or self._is_broken(shared):",
        "        if not self._key:",
        SPREAD,
        "after a late rank, ranks that meet again cannot communicate",
    ),
    Mutant(
        "slow-first-step-raises",
        STEP,
        "            if any(_needs_ranks(hook) for hook in hooks) or any(check.raises for check in self._checks):\n",
        "            if True:\n",
        COMPARED,
        "a rank that is slow in the first step stops a training that is only observed",
    ),
    Mutant(
        "upper-halves-left-out",
        DIGEST,
        "            sums = [_product(rows, self._places) + _product(rows >> 32, self._halves) for rows in some]",
        "            sums = [_product(rows, self._places) for rows in some]",
        DIGESTS,
        "two signs that change together are not seen",
    ),
    Mutant(
        "last-part-closed",
        REPLICA_CHECK,
        "Piece(at, start, None if is_last else end)",
        "Piece(at, start, size if is_last else end)",
        COMPARED,
        "what a parameter gains in place is not compared",
    ),
    Mutant(
        "uneven-tensors-not-reported",
        REPLICA_CHECK,
        "                self._report_uneven(hook, [slot for _, slots in found.values() for slot in slots])\n",
        "",
        COMPARED,
        "a tensor that a rank lacks is left out silently",
    ),
    Mutant(
        "meta-tensors-compared",
        REPLICA_CHECK,
        "tensor.layout is not torch.strided or tensor.is_meta",
        "tensor.layout is not torch.strided",
        COMPARED,
        "a tensor without values stops the training",
    ),
    Mutant(
        "rank-not-encoded",
        SKEW,
        "    number = (ordered << _RANK_BITS) + rank\n",
        "    number = ordered << _RANK_BITS\n",
        ENCODED,
        "the wrong rank is named",
    ),
    Mutant(
        "nan-is-a-number",
        SKEW,
        "    if math.isnan(value):\n        return ABSENT, ABSENT\n",
        "",
        ENCODED,
        "a NaN hides the numbers of the other ranks",
    ),
    Mutant(
        "later-step-recorded",
        SKEW,
        "_table(self._step, hook.resolved.params, partial(list, found))",
        "_table(self._step + 1, hook.resolved.params, partial(list, found))",
        SPREAD,
        "numbers are recorded under the step in which they were exchanged",
    ),
    Mutant(
        "muted-skew-exchanged",
        SKEW,
        "hook.active and not hook.status.is_muted",
        "hook.active",
        SPREAD,
        "a hook that was muted inside join() is reported twice",
    ),
    Mutant(
        "late-batch-not-joined",
        "record/flight.py",
        "self._batches[-1].step == batch.step:",
        "False:",
        SPREAD,
        "a flight recorder counts the numbers that arrive later as a step",
    ),
]

MUTANTS = [*OF_MEETINGS, *OF_HEADERS, *OF_LAYOUTS, *OF_MODIFIERS, *OF_COMPARISONS]
