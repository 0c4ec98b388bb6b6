"""List mutants of the code that reads plans and saved states, and writes reports."""

from __future__ import annotations

from tests.support.record.mutant import Mutant

FILES, PLAN, SELECT = "plan/files.py", "plan/plan.py", "plan/select.py"
DCP, RESTORE, FORMAT = "keep/dcp.py", "keep/restore.py", "rig/saved/format.py"
REPORT, CONTENTS, FIND_RUNS = "view/report.py", "view/data/contents.py", "record/run_folder/find_runs.py"
RUN_DATA = "view/data/run_data.py"

PLANS, SELECTORS, HOOKS = "tests/plan/test_files.py", "tests/plan/test_select.py", "tests/plan/test_hook.py"
NOT_A_PLAN = (f"{PLANS}::test_what_is_not_a_plan_says_so",)
NOT_A_SELECTOR = (f"{SELECTORS}::test_what_cannot_be_a_selector_says_so",)
CHECKPOINTS, RESTORED = "tests/keep/test_dcp.py", "tests/keep/test_restore.py"
REFUSED = ("tests/keep/test_report.py::test_what_cannot_be_read_is_refused_and_nothing_is_loaded[a bit of the header]",)
VOUCHED = (f"{CHECKPOINTS}::test_every_byte_of_a_large_tensor_is_vouched_for",)
PAGES, HOSTILE = "tests/view/test_report.py", "tests/record/test_untrusted_folder.py"

OF_PLANS = [
    Mutant("unknown-key-of-a-hook", FILES, "class _Hook(msgspec.Struct, forbid_unknown_fields=True,",
           "class _Hook(msgspec.Struct,", NOT_A_PLAN, "a misspelled field of a hook is ignored"),
    Mutant("unknown-key-of-a-plan", FILES, "class _Plan(msgspec.Struct, forbid_unknown_fields=True,",
           "class _Plan(msgspec.Struct,", NOT_A_PLAN, "a misspelled field of a plan is ignored"),
    Mutant("unknown-key-of-when", FILES, "class _When(msgspec.Struct, forbid_unknown_fields=True,",
           "class _When(msgspec.Struct,", NOT_A_PLAN, "a misspelled field of `when` is ignored"),
    Mutant("unknown-key-in-toml", FILES, "class _Toml(msgspec.Struct, forbid_unknown_fields=True,",
           "class _Toml(msgspec.Struct,", (f"{PLANS}::test_toml_is_read_strictly",),
           "a misspelled table in TOML is ignored"),
    Mutant("any-version", FILES, "    if version != FORMAT:", "    if False:", NOT_A_PLAN,
           "a plan of another format is misread"),
    Mutant("two-actions", FILES, "elif len(read.do) != 1:", "elif not read.do:", NOT_A_PLAN,
           "a hook with two actions is not refused as such"),
    Mutant(
        "limit-bytes", FILES,
        ' or (isinstance(raw, str) and len(raw.encode("utf-8", "surrogatepass")) > max_bytes)', "",
        (f"{PLANS}::test_the_size_is_in_bytes_for_a_string_too",),
        "the size of a text is counted in characters",
    ),
    Mutant("limit-file", FILES, "file.read(MAX_BYTES + 1)", "file.read()",
           (f"{PLANS}::test_a_file_of_30_mb_is_refused_without_being_read",), "a huge file is read into memory"),
    Mutant("limit-depth", FILES, "if len(open_keys) > MAX_DEPTH:", "if False:",
           (f"{PLANS}::test_the_depth_counts_every_level",), "a text may be nested to any depth"),
    Mutant("limit-depth-of-toml", FILES, "if max(depth, dots) > MAX_DEPTH:", "if dots > MAX_DEPTH:",
           (f"{PLANS}::test_toml_that_is_too_deep_is_refused_before_it_is_parsed",),
           "brackets in TOML may be nested to any depth"),
    Mutant("limit-parts", FILES, "if count == MAX_PARTS:", "if False:",
           (f"{PLANS}::test_a_text_of_too_many_parts_is_refused",), "a text may have any number of parts"),
    Mutant("limit-values", FILES, "if count > MAX_VALUES:", "if count > MAX_VALUES + 100:",
           (f"{PLANS}::test_what_could_not_be_read_back_is_not_written",), "parameters may have too many values"),
    Mutant("limit-integers", FILES, "if abs(value) > MAX_INTEGER:", "if False:",
           (f"{PLANS}::test_an_integer_past_2_to_the_53_is_refused",), "a number changes when others read the plan"),
    Mutant("double-keys", FILES, "if key in open_keys[-1]:", "if False:",
           (f"{PLANS}::test_a_key_that_stands_twice_is_refused",), "the second of two keys wins silently"),
    Mutant("byte-order-mark", FILES, 'if raw.startswith("\\ufeff"):', "if False:",
           (f"{PLANS}::test_a_byte_order_mark_is_refused",), "a byte order mark is not reported as such"),
    Mutant("control-characters", FILES, "if found := _FORBIDDEN.search(raw):", "if found := None:",
           (f"{PLANS}::test_a_raw_control_character_is_refused",), "control characters are read"),
    Mutant("digest-of-any-order", FILES, "json.dumps(plan, sort_keys=True,", "json.dumps(plan,",
           (f"{PLANS}::test_the_digest_is_the_same_in_every_release_of_the_format",), "the digest of a plan changes"),
    Mutant("digest-of-defaults", FILES, "        if getattr(hook, name) is not None:", "        if True:",
           (f"{PLANS}::test_the_canonical_text_is_sorted_without_white_space_or_defaults",),
           "the digest depends on written defaults"),
    Mutant("limit-hooks", PLAN, "if len(hooks) > MAX_HOOKS:", "if False:",
           (f"{HOOKS}::test_a_plan_has_at_most_so_many_hooks",), "a plan may have any number of hooks"),
    Mutant("double-ids", PLAN, "            seen.add(hook.id)", "            pass",
           (f"{HOOKS}::test_an_id_stands_once_in_a_plan",), "two hooks have one id"),
    Mutant("limit-patterns", SELECT, "if len(self.patterns) > MAX_PATTERNS:", "if False:", NOT_A_SELECTOR,
           "a selector may have any number of patterns"),
    Mutant("limit-pattern", SELECT, "if len(pattern) > MAX_PATTERN_LENGTH:", "if False:", NOT_A_SELECTOR,
           "a pattern may have any length"),
    Mutant("unprintable-pattern", SELECT, "if not pattern.isprintable():", "if False:", NOT_A_SELECTOR,
           "a pattern may have control characters"),
    Mutant("glob-matches-root", SELECT, 'if name != ROOT and (pattern.text == "**"', 'if (pattern.text == "**"',
           (f"{SELECTORS}::test_no_glob_matches_the_root",), "`**` also selects the whole model"),
]  # fmt: skip

OF_STATES = [
    Mutant("digest-not-checked", FORMAT, "if digest(own[key]) != entry.digest:", "if False:", VOUCHED,
           "a damaged tensor is restored"),
    Mutant("digest-of-the-header", FORMAT, "if digest(bytes(sealed.state)) != sealed.digest:", "if False:",
           REFUSED, "a damaged header is read"),
    Mutant("step-not-restored", RESTORE, "    rig._take(saved, kept)\n", "",
           (f"{RESTORED}::test_it_goes_on_bit_for_bit[3]",), "the steps and the state are not restored"),
    Mutant("strict-ignored", RESTORE, "        report.refuse()\n", "        pass\n",
           (f"{RESTORED}::test_of_a_plan_that_does_not_fit_at_all_the_rest_is_not_looked_at",),
           "a state that does not fit is restored in part"),
    Mutant("saved-order-ignored", RESTORE, "sorted(one.targets, key=lambda t: place.get(t.name, len(place)))",
           "one.targets", (f"{RESTORED}::test_targets_fire_in_the_order_they_had",),
           "random numbers go to other targets than before"),
    Mutant("saved-tensors-shared", RESTORE, "tensor.to(device, copy=True)", "tensor.to(device)",
           (f"{RESTORED}::test_the_restored_rig_shares_nothing_with_the_state",),
           "the rig changes with the tensors of the checkpoint"),
    Mutant("given-tensors-ignored", RESTORE, " | dict(tensors or {})", "",
           (f"{RESTORED}::test_tensors_come_with_the_state_or_are_given",), "tensors that were passed are ignored"),
    Mutant("hooks-doubled", RESTORE, "    free_ids(model, plan, replace=replace)\n", "",
           (f"{RESTORED}::test_onto_a_model_that_has_the_hooks_already",), "restoring twice attaches hooks twice"),
    Mutant("endless-comparison", RESTORE, "if len(report.differences) >= MAX_DIFFERENCES:", "if False:",
           (f"{RESTORED}::test_of_a_plan_that_does_not_fit_at_all_the_rest_is_not_looked_at",),
           "a hostile plan is compared to its end"),
    Mutant("no-hooks-is-fine", DCP, "    if not found:\n", "    if False:\n",
           (f"{CHECKPOINTS}::test_a_checkpoint_without_hooks",), "a checkpoint without hooks is not refused as such"),
    Mutant("first-rig-wins", DCP, "if under is None and len(found) > 1:", "if False:",
           (f"{CHECKPOINTS}::test_several_rigs_are_told_apart_by_their_keys",), "the wrong rig is read"),
    Mutant("any-entry-of-dcp", DCP, "if not known or (key.endswith", "if (key.endswith",
           (f"{CHECKPOINTS}::test_entries_that_are_not_ours_are_refused_before_they_are_read",),
           "an entry that would be unpickled is read"),
    Mutant("limit-header-of-dcp", DCP, ' or (key.endswith("/" + HEADER) and entry.size.numel() > MAX_HEADER)', "",
           (f"{CHECKPOINTS}::test_entries_that_are_not_ours_are_refused_before_they_are_read",),
           "memory for a header of any size is allocated"),
    Mutant("other-ranks-of-dcp", DCP, "if key.startswith(mine)}", "if True}",
           (f"{CHECKPOINTS}::test_only_this_ranks_entries_have_a_place",), "a rank reads the states of all ranks"),
    Mutant("options-of-dcp", DCP, "self._rig.load_state_dict(self._tensors, **self._options)",
           "self._rig.load_state_dict(self._tensors)",
           (f"{CHECKPOINTS}::test_what_is_loaded_as_rename_and_strict_say",), "rename and strict are ignored"),
    Mutant("limit-keys-of-dcp", DCP, "    if len(entries) > MAX_KEYS:", "    if False:",
           (f"{CHECKPOINTS}::test_a_checkpoint_of_too_many_entries_is_refused",),
           "a checkpoint may have any number of entries"),
]  # fmt: skip

OF_REPORTS = [
    Mutant("title-not-escaped", REPORT, "{html.escape(title)}", "{title}",
           (f"{PAGES}::test_the_name_of_a_folder_cannot_add_elements_to_the_page",),
           "the name of a folder adds elements to the page"),
    Mutant("policy-allows-the-network", REPORT, "default-src 'none'", "default-src *",
           (f"{PAGES}::test_the_policy_allows_only_the_parts_of_the_page",), "the page may use the network"),
    Mutant("policy-allows-scripts", REPORT, "{_digest(script)}", "'unsafe-inline'",
           (f"{PAGES}::test_the_policy_allows_only_the_parts_of_the_page",), "the page runs any script"),
    Mutant("policy-of-other-scripts", REPORT, "hashlib.sha256(text.encode())", "hashlib.sha256(text[1:].encode())",
           (f"{PAGES}::test_the_policy_allows_only_the_parts_of_the_page",), "the page does not run its own script"),
    Mutant("report-follows-links", FIND_RUNS, "one.is_dir(follow_symlinks=False)", "one.is_dir()",
           (f"{PAGES}::test_links_to_other_folders_are_not_followed",), "a link adds a run from elsewhere"),
    Mutant("report-follows-flights", RUN_DATA, 'if not (folder / "flights").is_symlink() else ()',
           "if True else ()", (f"{PAGES}::test_links_to_other_folders_are_not_followed",),
           "a link adds flight reports from elsewhere"),
    Mutant("limit-series", CONTENTS, "if curves > limit:", "if False:",
           (f"{HOSTILE}::test_a_run_of_too_many_curves_has_no_report",), "a report may have any number of curves"),
    Mutant("limit-names-of-reports", CONTENTS, "if size > self._folder.limits.table_bytes:", "if False:",
           (f"{HOSTILE}::test_names_that_would_fill_a_page_are_refused",), "a report may have any names"),
    Mutant("limit-flights", RUN_DATA, "if size > inside.limits.text_bytes:", "if False:",
           (f"{PAGES}::test_flight_reports_have_a_limit",), "a report may have flight reports of any size"),
    Mutant("nameless-rows", CONTENTS, "if any(table[column].null_count for column in table.column_names):", "if False:",
           (f"{HOSTILE}::test_rows_without_names_have_no_report",), "rows without names end in a TypeError"),
    Mutant("nonfinite-hidden", "view/file_data.py", "code[np.isinf(values)] = NONFINITE",
           "code[np.isinf(values)] = ZERO",
           (f"{PAGES}::test_steps_are_grouped_if_there_are_too_many_cells",), "a NaN is drawn as a zero"),
    Mutant("histogram-of-one-block", "view/file_data.py", "[(0, len(targets)), *blocks_of(targets, MAX_BLOCKS)]",
           "blocks_of(targets, MAX_BLOCKS)", (f"{PAGES}::test_the_page_holds_the_numbers_of_the_run",),
           "the sum of all histograms is missing"),
]  # fmt: skip

MUTANTS = [*OF_PLANS, *OF_STATES, *OF_REPORTS]
