"""List mutants of the code that records: the queues of the sinks, the store, the containment of errors, the reader."""

from __future__ import annotations

from tests.support.record.mutant import Mutant

WORKER, STORE, RUN = "record/sink_worker.py", "record/store.py", "record/run.py"
CONTAINMENT, SIGTERM = "record/containment.py", "record/sigterm.py"
RECORDER, FLIGHT = "record/recorder.py", "record/flight.py"

SINKS, ENDING = "tests/record/test_sink_worker.py", "tests/record/test_ending.py"
HOSTILE, STORES = "tests/record/test_untrusted_folder.py", "tests/record/test_store.py"
FAULTS, FLIGHTS = "tests/record/test_injected_faults.py", "tests/record/test_flight.py"
LOCKS = "tests/record/test_writer_lock.py"
CONFINED = (f"{HOSTILE}::test_a_query_cannot_loosen_the_settings",)
ANY_NAME = (f"{STORES}::test_a_folder_may_have_any_name",)

COUNTING = [
    Mutant(
        "queue-off-by-one", WORKER, "waiting + rows > MAX_WAITING:", "waiting + rows >= MAX_WAITING:",
        (f"{SINKS}::test_a_hung_sink_delays_nothing_and_its_dropped_rows_are_counted",),
        "rows are dropped although the queue has space for them",
    ),
    Mutant(
        "queue-without-limit", WORKER, "if waiting and waiting + rows > MAX_WAITING:", "if False:",
        (f"{SINKS}::test_a_hung_sink_delays_nothing_and_its_dropped_rows_are_counted",),
        "the rows of a hung sink fill the memory",
    ),
    Mutant(
        "late-rows-not-counted", WORKER,
        '                self._lose(rows, "the sink was closed" if self.error is None else self._raised())\n', "",
        (f"{ENDING}::test_rows_for_a_closed_sink_are_counted",), "rows for a closed sink are not counted as dropped",
    ),
    Mutant(
        "failed-rows-not-counted", WORKER,
        "                    self._lose(rows, self._raised())", "                    pass",
        (f"{SINKS}::test_a_sink_that_raises_now_and_then_gets_the_rest",), "rows of a failed write are not counted",
    ),
    Mutant(
        "rest-not-counted", WORKER, "self._lose(sum(map(len, self._queue)),", "self._lose(len(self._queue),",
        (f"{SINKS}::test_a_hung_sink_does_not_use_up_the_time_of_another_one",),
        "the rows that are dropped at the end are counted as steps",
    ),
    Mutant(
        "fault-of-worker-not-counted", WORKER, "if left := self.waiting:", "if left := 0:",
        (f"{SINKS}::test_a_fault_in_the_worker_itself_loses_no_count",), "rows are lost with the thread of a worker",
    ),
    Mutant(
        "drops-not-recorded", WORKER, "        if dropped:\n", "        if False:\n",
        (f"{SINKS}::test_the_number_of_dropped_rows_is_recorded_with_the_next_rows",),
        "the run folder does not have the number of dropped rows",
    ),
    Mutant(
        "losses-not-reported", WORKER, "if self.dropped or self.waiting:", "if False:",
        (f"{SINKS}::test_a_sink_that_raises_now_and_then_gets_the_rest",), "losses are not reported",
    ),
    Mutant(
        "emitted-rows-not-counted", RECORDER,
        "        if len(self._emitted) >= MAX_EMITTED:\n            self.dropped += 1\n",
        "        if len(self._emitted) >= MAX_EMITTED:\n",
        (f"{ENDING}::test_rows_that_exceed_the_limit_of_a_step_are_counted",), "rows are dropped silently",
    ),
    Mutant(
        "emitted-without-copy", RECORDER, "torch.float64, copy=True", "torch.float64",
        (f"{ENDING}::test_an_emitted_number_is_copied",), "a number changes after it was emitted",
    ),
    Mutant(
        "shared-on-every-rank", RECORDER, "if not shared or self.rank == self._first:", "if True:",
        (f"{ENDING}::test_only_rank_0_records_numbers_that_are_equal_on_all_ranks",),
        "every rank records what all ranks have in common",
    ),
]  # fmt: skip

WAITING = [
    Mutant(
        "close-without-waiting", WORKER, "        self._wait_until(lambda: self.state is WorkerState.ENDED)\n", "",
        (f"{SINKS}::test_a_slow_sink_that_accepts_rows_loses_none",), "closing drops rows that could be written",
    ),
    Mutant(
        "flush-without-waiting", WORKER, "        self._wait_until(lambda: not self.waiting)\n", "",
        (f"{ENDING}::test_flush_does_not_wait_until_the_sink_would_write_by_itself",),
        "flush returns before the rows are written",
    ),
    Mutant(
        "flush-waits-for-linger", WORKER, " or self._flushing", "",
        (f"{ENDING}::test_flush_does_not_wait_until_the_sink_would_write_by_itself",),
        "flush waits until the sink writes by itself",
    ),
    Mutant(
        "deadline-ignored", WORKER, "left = self._progress + self.close_timeout - now", "left = 9.0",
        (f"{SINKS}::test_a_sink_sets_its_own_time_limit",), "a hung sink keeps the process from ending",
    ),
    Mutant(
        "deadline-not-renewed", WORKER,
        "                self._progress = time.monotonic()\n                if wrote:", "                if wrote:",
        (f"{SINKS}::test_a_slow_sink_that_accepts_rows_loses_none",), "rows of a slow sink that works are dropped",
    ),
    Mutant(
        "own-timeout-ignored", WORKER, 'float(getattr(self.sink, "close_timeout", CLOSE_TIMEOUT))', "CLOSE_TIMEOUT",
        (f"{SINKS}::test_a_sink_sets_its_own_time_limit",), "the time limit of a sink is ignored",
    ),
    Mutant(
        "fork-keeps-the-queue", WORKER, "        worker._reset()\n", "        pass\n",
        (f"{ENDING}::test_a_forked_process_begins_with_an_empty_queue",),
        "a forked process writes the rows of its parent again",
    ),
    Mutant(
        "no-thread-no-rows", WORKER, "            if self._thread is None:\n                self._run()\n", "",
        (f"{SINKS}::test_rows_are_written_even_if_no_thread_can_be_started",),
        "rows are lost if no thread can be started",
    ),
    Mutant(
        "sink-ends-its-thread", WORKER, "        except BaseException as error:", "        except Exception as error:",
        (f"{SINKS}::test_a_sink_that_ends_its_thread_is_reported",), "a sink that calls sys.exit() is not reported",
    ),
]  # fmt: skip

ENDINGS = [
    Mutant(
        "atexit-not-registered", WORKER, "atexit.register(_at_exit)", "",
        (f"{ENDING}::test_the_end_of_the_interpreter_waits_for_the_sinks",), "the last rows are lost at exit",
    ),
    Mutant(
        "atexit-without-waiting", WORKER, 'call_and_report(f"closing the sink {worker.name}", worker.close)', "pass",
        (f"{ENDING}::test_the_end_of_the_interpreter_waits_for_the_sinks",), "exit does not wait for the sinks",
    ),
    Mutant(
        "sigterm-not-handled", SIGTERM, "_before.append(signal.signal(signal.SIGTERM, _handle))", "pass",
        (f"{ENDING}::test_sigterm_writes_the_rows_and_calls_the_handler_of_the_program",),
        "SIGTERM ends the process before the rows are written",
    ),
    Mutant(
        "sigterm-without-rows", RECORDER,
        'self.errors.contain("writing the rows of a sink", worker.flush)', "pass",
        (f"{ENDING}::test_sigterm_writes_the_rows_and_calls_the_handler_of_the_program",),
        "SIGTERM writes the flight report but not the rows",
    ),
    Mutant(
        "sigterm-swallowed", SIGTERM, "        os.kill(os.getpid(), signal.SIGTERM)", "        pass",
        (f"{ENDING}::test_sigterm_ends_the_process_after_the_rows_are_written",), "SIGTERM does not end the process",
    ),
    Mutant(
        "sigterm-of-the-program", SIGTERM, "        before(number, frame)", "        pass",
        (f"{ENDING}::test_sigterm_writes_the_rows_and_calls_the_handler_of_the_program",),
        "the program's handler is not called",
    ),
    Mutant(
        "sigterm-not-ignored", SIGTERM, "elif before != signal.SIG_IGN:", "else:",
        (f"{ENDING}::test_an_ignored_sigterm_stays_ignored",), "SIGTERM ends a process that ignores it",
    ),
    Mutant(
        "sigterm-handler-stays", RECORDER, "        sigterm.unwatch(self)\n", "",
        (f"{FLIGHTS}::test_the_signal_handler_is_restored",), "our handler stays after the rig is detached",
    ),
    Mutant(
        "sigterm-survives-a-warning", SIGTERM, 'call_and_report("writing at SIGTERM", one.on_sigterm)',
        "one.on_sigterm()", (f"{ENDING}::test_sigterm_ends_the_process_if_warnings_are_errors",),
        "a process whose warnings are errors ignores SIGTERM",
    ),
    Mutant(
        "sigterm-deadlock", WORKER, "threading.Condition(threading.RLock())", "threading.Condition(threading.Lock())",
        (f"{ENDING}::test_a_handler_may_run_while_its_thread_holds_the_lock_of_a_worker",),
        "SIGTERM during a step makes the process hang",
    ),
    Mutant(
        "flight-of-a-fork", FLIGHT, " and os.getpid() == self._process", "",
        (f"{ENDING}::test_a_forked_process_writes_no_flight_report",), "each worker of a data loader writes a report",
    ),
]  # fmt: skip

CONTAINING = [
    Mutant(
        "exit-swallowed", CONTAINMENT, "return _passed_a_signal_handler(error.__traceback__)", "return False",
        (f"{FAULTS}::test_a_signal_handler_that_exits_is_not_contained",),
        "a signal handler of the program cannot end it",
    ),
    Mutant(
        "exit-not-contained", CONTAINMENT, "return _passed_a_signal_handler(error.__traceback__)", "return True",
        (f"{FAULTS}::test_the_end_of_a_step_survives_every_kind_of_error[SystemExit]",),
        "sys.exit() in recording ends the training",
    ),
    Mutant(
        "interrupt-swallowed", CONTAINMENT, "return not isinstance(error, Exception)", "return False",
        (f"{FAULTS}::test_an_interrupt_by_the_user_is_not_contained",), "Ctrl-C is ignored",
    ),
    Mutant(
        "errors-not-counted", CONTAINMENT, "self.counts[what] += 1", "self.counts[what] = 1",
        (f"{FAULTS}::test_an_internal_error_is_reported_once_and_counted",), "errors are not counted",
    ),
    Mutant(
        "exit-on-a-thread", CONTAINMENT,
        'BaseException as error:\n        warn', 'Exception as error:\n        warn',
        (f"{ENDING}::test_an_error_on_a_thread_is_reported",), "sys.exit() on a thread is not reported",
    ),
    Mutant(
        "warning-raised-on-a-thread", CONTAINMENT, "    except Warning:\n", "    except ZeroDivisionError:\n",
        (f"{ENDING}::test_a_warning_that_is_an_error_is_printed_on_a_thread",),
        "a warning that is an error ends the thread of a sink",
    ),
]  # fmt: skip

STORING = [
    Mutant(
        "store-takes-no-lock", STORE, "writer_lock.acquire(self._folder.full(\"\"), rank)", '""',
        (f"{LOCKS}::test_a_rig_gives_the_lock_up_when_it_is_detached",), "a store takes no lock",
    ),
    Mutant(
        "store-keeps-the-lock", STORE, "                    writer_lock.release(path)", "                    pass",
        (f"{LOCKS}::test_a_rig_gives_the_lock_up_when_it_is_detached",), "a closed store keeps the lock",
    ),
    Mutant(
        "fork-writes-parts", STORE, "if os.getpid() != self._process:", "if False:",
        (f"{STORES}::test_a_forked_process_leaves_the_parent_s_parts_alone",),
        "a forked process writes with the store of its parent",
    ),
    Mutant(
        "supersede-off-by-one", "record/run_folder/folder.py", 'pc.field("step") < step',
        'pc.field("step") <= step',
        (f"{STORES}::test_a_resumed_run_replaces_the_steps_that_it_repeats",),
        "the first repeated step is in the files twice",
    ),
    Mutant(
        "supersede-other-ranks", STORE, " or part.rank != rank", "",
        (f"{STORES}::test_ranks_supersede_only_their_own_steps",), "a resumed rank deletes the rows of the others",
    ),
    Mutant(
        "supersede-nothing", STORE, "            if not self._superseded:", "            if False:",
        (f"{STORES}::test_a_resumed_run_replaces_the_steps_that_it_repeats",),
        "other readers see repeated steps twice",
    ),
    Mutant(
        "superseded-rows-are-read", RUN, 'f" where step < {limit}"', '""',
        (f"{STORES}::test_a_reader_leaves_out_superseded_rows_that_still_exist",), "repeated steps are read twice",
    ),
]  # fmt: skip

QUERIES = [
    Mutant(
        "external-access", RUN, "enable_external_access = false", "enable_external_access = true",
        (f"{HOSTILE}::test_a_query_reads_nothing_outside_the_folder",), "a query reads and writes any file",
    ),
    Mutant("settings-not-locked", RUN, "lock_configuration = true", "lock_configuration = false", CONFINED,
           "a query may change the settings"),
    Mutant("extensions-loaded", RUN, "autoload_known_extensions = false", "autoload_known_extensions = true", CONFINED,
           "a query loads extensions"),
    Mutant("extensions-installed", RUN, "autoinstall_known_extensions = false", "autoinstall_known_extensions = true",
           CONFINED, "a query installs extensions from the network"),
    Mutant(
        "wildcards-expanded", RUN, ' and not _WILDCARDS & set(folder.full(""))', "",
        (f"{HOSTILE}::test_wildcards_in_the_name_of_a_folder_match_no_other_folder",),
        "the name of a folder matches other folders",
    ),
    Mutant("quotes-not-escaped", RUN, """word.replace("'", "''")""", "word", ANY_NAME,
           "the name of a folder changes the query"),
    Mutant("columns-from-names", RUN, "hive_partitioning = false", "hive_partitioning = true", ANY_NAME,
           "the name of a folder replaces a column"),
]  # fmt: skip

MUTANTS = [*COUNTING, *WAITING, *ENDINGS, *CONTAINING, *STORING, *QUERIES]
