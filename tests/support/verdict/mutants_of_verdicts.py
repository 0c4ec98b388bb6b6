"""List mutants of the code that examines a training and says what went wrong."""

from __future__ import annotations

from tests.support.record.mutant import Mutant

AGAIN, SHARDED, COUNTERS = "rig/rerun/second_run.py", "rig/rerun/sharded_run.py", "rig/rerun/counters.py"
CASE, JUDGE, EXAMINER = "verdict/case.py", "verdict/judge.py", "verdict/examiner.py"
LEAPS, UPDATES, GROWTH = "verdict/rules/leaps.py", "verdict/rules/updates.py", "verdict/rules/growth.py"
CONSTANT = "verdict/rules/constant.py"
UNTRAINED, MEASUREMENT, HISTORY = "verdict/rules/untrained.py", "verdict/measurement.py", "verdict/history.py"

RULES, RERUN = ("tests/verdict/test_rules.py",), ("tests/verdict/test_rerun.py",)
COUNTS = ("tests/verdict/test_nonfinite.py::test_a_module_that_counts_its_calls_is_named_and_counts_on",)
WATCHED = ("tests/verdict/test_examiner.py",)
RANKS = ("tests/ranks/test_verdicts.py",)

OF_THE_SECOND_RUN = [
    Mutant("other-random-numbers", AGAIN, "        call.random.restore()\n", "", RERUN,
           "the second run of a model with dropout gives other values"),
    Mutant("random-state-moves", AGAIN, "        stack.enter_context(kept_random_state(log.devices))\n", "", RERUN,
           "the second run changes the random numbers of the program"),
    Mutant("buffers-of-now", AGAIN, "starts.get(name, buffer)", "buffer", RERUN,
           "the second run changes the statistics of batch normalization"),
    Mutant("calls-count-twice", AGAIN, "        counters.restore()", "        pass", COUNTS,
           "a module counts the second run as a call"),
    Mutant("calls-not-counted-back", AGAIN, " and counters.count_back():", " and False:", COUNTS,
           "a forward pass that depends on its number of calls is not reproduced"),
    Mutant("gradient-not-reproduced", AGAIN, " and (origin is not None or not _has_bad_gradient(body))", "",
           ("tests/verdict/test_nonfinite.py",), "a bad gradient that does not come back is harmless"),
    Mutant("counts-in-dicts", COUNTERS, "value if type(value) is dict else ", "", COUNTS,
           "a module that counts in a dict counts the second run"),
    Mutant("hooks-in-the-second-run", AGAIN, "        stack.enter_context(without_rigs(names))\n", "", WATCHED,
           "the hooks of a rig fire in the second run"),
    Mutant("changed-inputs", AGAIN, "if any(call.changed_inputs() for call in log.calls):", "if False:",
           ("tests/verdict/test_nonfinite.py",), "a step whose inputs were changed runs again with the wrong ones"),
    Mutant("gathered-parameters", SHARDED, "        stack.callback(reshard, body)", "        pass", RANKS,
           "the next step of a sharded model uses the parameters of this one"),
]  # fmt: skip

OF_THE_EXAMINER = [
    Mutant("late-is-now", EXAMINER, 'if self._trip == "late":', "if False:", WATCHED,
           'trip="late" waits for the numbers'),
    Mutant("last-late-step", EXAMINER, "self._end_late_step)\n        self._steps", "int)\n        self._steps",
           WATCHED, 'the last step is lost with trip="late"'),
    Mutant("a-rank-that-fails", MEASUREMENT, "float(failure is not None)", "0.0", RANKS,
           "a rank whose measurement fails is not noticed by the others"),
    Mutant("ranks-add-norms", MEASUREMENT, "values.square() * weights[places]", "values * weights[places]", RANKS,
           "the norms of all ranks are added instead of their squares"),
    Mutant("losses-of-skipped-steps", EXAMINER, "self._losses.forget()", "pass", WATCHED,
           "the loss of a step is the mean of the losses of all steps that were skipped before"),
    Mutant("memory-of-a-freed-model", EXAMINER, "        self._samples = WeightSamples()\n        self._held.clear()",
           "        self._held.clear()", WATCHED, "the memory of a freed model is kept"),
]  # fmt: skip

OF_THE_RULES = [
    Mutant("any-later-nan", CASE, "if bad and end <= step + SOON:", "if bad:", RULES,
           "a bad batch is the cause of a NaN much later"),
    Mutant("until-the-end", CASE, "between(step + 1, end)[-10:]", "latest(10)", RULES,
           "a run that breaks for another reason ends badly because of a bad batch"),
    Mutant("first-trouble", CASE, "for one in self.examinations if one.step >= step), default=None)",
           "for one in self.examinations), default=None)", RULES, "an earlier leap hides the harm of a jump"),
    Mutant("overwritten", CASE, "> SUDDEN for one in recent)", "> math.inf for one in recent)", RULES,
           "a gradient is named instead of the weight that was overwritten"),
    Mutant("explained-later", JUDGE, "(one.step < explained and not", "(explained == math.inf and not", RULES,
           "what happens later explains an explosion"),
    Mutant("explained-long-ago", JUDGE, "0 <= one.step - at <= SOON", "0 <= one.step - at", RULES,
           "a layer that was overwritten long ago explains an explosion"),
    Mutant("no-explaining-warning", JUDGE, "for at in warned", "for at in ()", RULES,
           "weights that are larger because one layer was overwritten explode"),
    Mutant("scale-explains-nothing", JUDGE, '"TH816", ', "", RULES,
           "a training explodes because its loss scale collapses"),
    Mutant("small-gradient-grows", LEAPS, "total < NOTICED * usual_total", "False", RULES,
           "a gradient that begins near zero and grows is taken for a fault"),
    Mutant("several-batches", LEAPS, " and not several:", ":", RULES,
           "a loss scale that collapses is called one bad batch"),
    Mutant("still-huge", LEAPS, "        recovered = min(recovered, max(", "        min(recovered, max(", RULES,
           "a loss that is a million times larger has recovered"),
    Mutant("clipped-leap", LEAPS, "LARGER if clips else ", "", RULES,
           "clipping hides the gradient that leapt"),
    Mutant("not-apart", HISTORY, "ParameterLeaps(apart=APART)", "ParameterLeaps()", RULES,
           "clipping hides the gradient that leapt"),
    Mutant("momentum", UPDATES, "NEAR * usual or largest >= max(NEAR, moved.usual / LARGE) * usual", "NEAR * usual",
           RULES, "momentum after a large gradient is out of proportion"),
    Mutant("any-large-gradient", UPDATES, "max(NEAR, moved.usual / LARGE)", "NEAR", RULES,
           "a gradient that is somewhat larger hides an update that is out of proportion"),
    Mutant("unusual-gradient", UPDATES, "total >= NEAR * usual or ", "", RULES,
           "a large gradient is called a usual one"),
    Mutant("layer-that-moves-furthest", UPDATES, " or moved.usual > LARGE", "", RULES,
           "one layer is named although all of them moved"),
    Mutant("after-a-jump", UPDATES, " if not 0 < one.step - broken <= LONG", "", RULES,
           "an update after a learning rate that jumped is called another cause"),
    Mutant("saturated", LEAPS, "*_saturated(case)", "*()", RULES, "a batch that saturates the model is not noticed"),
    Mutant("saturated-and-clipped", LEAPS, " and max(one.factors.values()) < AS_USUAL}", "}", RULES,
           "a step that is clipped is called a bad batch"),
    Mutant("chance", CONSTANT, "max(LITTLE, CHANCE / math.sqrt(count)) * noise", "LITTLE * noise", RULES,
           "a flat loss is not noticed, because the medians of few losses differ"),
    Mutant("falls-slowly", CONSTANT, " and stuck and hardly", " and hardly", RULES,
           "a noisy loss that falls slowly is called flat"),
    Mutant("passes-of-a-step", HISTORY, "sure or single else", "sure else", RULES,
           "a step that the program skips is taken for a part of an accumulated gradient"),
    Mutant("decay-after-explosion", "verdict/rules/settings.py", " and growth(case, first[0]) < GROWN", "", RULES,
           "weight decay is blamed for weights that exploded before"),
    Mutant("largest-of-the-first", UNTRAINED, "(median(size for _, size in found[:place])",
           "(max(size for _, size in found[:place])", RULES, "a tied embedding hides gradients that vanish"),
    Mutant("early-growth", GROWTH, " and early < EARLY:", ":", RULES,
           "weights that grow at once are not noticed"),
    Mutant("early-norms", HISTORY, "if self.steps == EARLY:", "if False:", RULES,
           "gradients that vanish at the beginning are not noticed"),
    Mutant("although-it-learns", UNTRAINED, "if is_flat(case, steps=2 * EARLY) and", "if", RULES,
           "small gradients of a training that learns are called vanishing"),
    Mutant("place-of-the-name", EXAMINER, "known.get(id(parameter), gone.get(name))", "known.get(id(parameter))",
           WATCHED, "a parameter that replaces another one counts as one more"),
    Mutant("idle-optimizer", UNTRAINED, "    if steps < ENOUGH:\n        return None\n    return verdict(",
           "    if steps:\n        return None\n    return verdict(", RULES,
           "an optimizer of another model is not noticed"),
]  # fmt: skip

MUTANTS = [*OF_THE_SECOND_RUN, *OF_THE_EXAMINER, *OF_THE_RULES]
