"""List mutants of the code that reads and writes run folders."""

from __future__ import annotations

from tests.support.record.mutant import Mutant

ATOMIC, FOLDER = "record/run_folder/atomic_file.py", "record/run_folder/folder.py"
PART, LOCK = "record/run_folder/part.py", "record/run_folder/writer_lock.py"
FOOTER, THRIFT = "record/run_folder/footer.py", "record/run_folder/thrift.py"

LAYER = ("tests/record/test_file_layer.py",)
HOSTILE = "tests/record/test_untrusted_folder.py"
LIMITS = (f"{HOSTILE}::test_a_folder_that_exceeds_a_limit_is_refused",)
FORGED = (f"{HOSTILE}::test_a_forged_footer_is_refused",)
LOCKS, STORE = "tests/record/test_writer_lock.py", "tests/record/test_store.py"
MERGE = (f"{STORE}::test_an_interrupted_merge_duplicates_no_row",)

ATOMIC_FILE = [
    Mutant(
        "fsync-file", ATOMIC, "            os.fsync(file.fileno())\n", "", LAYER,
        "the content is not on the disk when the file is renamed",
    ),
    Mutant(
        "fsync-without-flush", ATOMIC, "            file.flush()\n", "", LAYER,
        "the file is synced while its content is still in a buffer of Python",
    ),
    Mutant("fsync-folder", ATOMIC, "        os.fsync(descriptor)\n", "        pass\n", LAYER, "the name is not synced"),
    Mutant(
        "write-in-place", ATOMIC, "            os.replace(temporary, path)",
        "            with open(path, 'wb') as file:\n                file.write(data)\n                file.flush()\n"
        "                os.fsync(file.fileno())",
        LAYER, "a power failure leaves half a file",
    ),
    Mutant(
        "new-replaces", ATOMIC, "os.link(temporary, path)", "os.replace(temporary, path)",
        (f"{STORE}::test_two_stores_in_one_folder_do_not_replace_each_other",), "a new part replaces an existing one",
    ),
    Mutant(
        "temporary-through-a-link", ATOMIC, " | os.O_EXCL", "", LAYER,
        "a link that was planted under the temporary name is written through",
    ),
    Mutant(
        "temporary-left-behind", ATOMIC, "            os.unlink(temporary)", "            pass", LAYER,
        "a temporary file stays in the folder after an error",
    ),
]  # fmt: skip

READING = [
    Mutant("follow-links", FOLDER, " | os.O_NOFOLLOW", "", (HOSTILE,), "a link in a run folder is followed"),
    Mutant("wait-for-a-fifo", FOLDER, " | os.O_NONBLOCK", "", (HOSTILE,), "opening a FIFO waits forever"),
    Mutant(
        "read-devices", FOLDER, "if not stat.S_ISREG(about.st_mode):", "if False:", (HOSTILE,),
        "a FIFO or a device is read",
    ),
    Mutant(
        "list-links", FOLDER, "if entry.is_file(follow_symlinks=False):", "if entry.is_file():", (HOSTILE,),
        "links are listed as files",
    ),
    Mutant(
        "skip-odd-parts", FOLDER, "raise _not_regular(entry.name)", "continue", (HOSTILE,),
        "a part that is a link is silently left out",
    ),
    Mutant(
        "limit-files", FOLDER, "if len(found) > self.limits.files:", "if False:", LIMITS, "the number of files is free"
    ),
    Mutant("limit-text", FOLDER, "if size > limits.text_bytes:", "if False:", LIMITS, "a JSON file may have any size"),
    Mutant("limit-part", PART, "if size > limits.part_bytes:", "if False:", LIMITS, "a part may have any size"),
    Mutant(
        "limit-footer", PART, "if length > min(limits.footer_bytes, size - 8):", "if length > size - 8:", LIMITS,
        "a footer may have any size",
    ),
    Mutant(
        "footer-beyond-part", PART, "if length > min(limits.footer_bytes, size - 8):",
        "if length > limits.footer_bytes:", (HOSTILE,), "a footer may be longer than its part",
    ),
    Mutant(
        "limit-group", PART, "if group.largest > limits.group_bytes:", "if False:", LIMITS,
        "a row group may have any size",
    ),
    Mutant(
        "limit-numbers", PART, "if numbers > most:", "if False:",
        (f"{HOSTILE}::test_lists_of_too_many_numbers_are_refused",), "lists may have any number of numbers",
    ),
    Mutant("limit-rows", PART, "if footer.rows > most:", "if False:", LIMITS, "a part may have any rows"),
    Mutant(
        "rows-per-byte", PART, "max(limits.rows, limits.rows_per_byte * size)", "limits.rows", (HOSTILE,),
        "a large part with many rows is refused",
    ),
    Mutant(
        "any-schema", FOOTER, " or elements != _ELEMENTS:", ":", FORGED,
        "a schema with other levels reaches Arrow, which ends the process",
    ),
    Mutant(
        "any-columns", FOOTER, "if [(column.get(1), column.get(3)) for column in columns] != _PATHS:", "if False:",
        (HOSTILE,), "a Parquet file with other columns is read as a part",
    ),
    Mutant(
        "any-levels", FOOTER, "not in (0, level + 1):", "is None:", FORGED,
        "counts of levels reach Arrow, which ends the process",
    ),
    Mutant(
        "any-position", FOOTER, "if rows and (first < 4 or first + packed > end):", "if False:", FORGED,
        "a column may be outside the part",
    ),
    Mutant(
        "any-statistics", FOOTER, "one is not None and len(one) != column.width", "False", FORGED,
        "the smallest value of a column may have any size",
    ),
    Mutant(
        "any-file", FOOTER, "_CHUNK = _fields({1: REFUSED,", "_CHUNK = _fields({1: TEXT,", FORGED,
        "a column may be in another file",
    ),
    Mutant(
        "any-type", THRIFT, "(TRUE if kind == FALSE else kind) != field.kind or ", "", FORGED,
        "Arrow reads another footer than the one that was checked",
    ),
    Mutant("field-twice", THRIFT, " or number in made:", ":", FORGED, "Arrow reads the other one of two fields"),
    Mutant("limit-keys", THRIFT, "if count > MOST_ITEMS and", "if False and", FORGED, "a footer may have many keys"),
    Mutant("limit-structures", THRIFT, "if depth > MOST_DEPTH:", "if False:", FORGED, "a footer may be too deep"),
    Mutant(
        "words-not-once", PART, "read_dictionary=words, ", "",
        (f"{HOSTILE}::test_a_long_word_in_every_row_is_read_once",), "a long word fills the memory",
    ),
    Mutant(
        "limit-text-values", FOLDER, "if values > limits.text_values:", "if False:", LIMITS,
        "a JSON file may have any number of values",
    ),
    Mutant(
        "path-not-utf-8", FOLDER, 'if any("\\ud800" <= letter <= "\\udfff" for letter in self.path):', "if False:",
        (f"{HOSTILE}::test_a_path_that_is_not_utf_8_is_refused",), "a path ends in a UnicodeEncodeError",
    ),
    Mutant(
        "parts-never-read-again", FOLDER, " or state != now:", ":",
        (f"{HOSTILE}::test_a_part_is_read_again_only_if_it_has_changed",), "a part that was replaced is not seen",
    ),
    Mutant(
        "limit-names", "record/run.py", "if found is not None and found > most:", "if False:", (HOSTILE,),
        "a long word in every row of a table fills the memory",
    ),
    Mutant(
        "later-format", PART, 'if about["tenterhook"] > FORMAT:', "if False:", (HOSTILE,),
        "a part of a later format is misread",
    ),
    Mutant(
        "checksums-not-verified", PART, "page_checksum_verification=True", "page_checksum_verification=False",
        (HOSTILE,), "a damaged part is read without an error",
    ),
    Mutant(
        "checksums-not-written", FOLDER, "write_page_checksum=True", "write_page_checksum=False", (HOSTILE,),
        "parts have no checksums",
    ),
    Mutant(
        "free-shape-of-json", "record/run_folder/sidecars.py", "msgspec.json.decode(text, type=kind)",
        "kind(**{name: msgspec.json.decode(text)[name] for name in kind.__struct_fields__})", (HOSTILE,),
        "the content of a JSON file is not checked",
    ),
]  # fmt: skip

MERGING = [
    Mutant(
        "merge-replaces-nothing", FOLDER, "folder.write_part(name, table, replaces=old)",
        "folder.write_part(name, table)", MERGE, "after an interrupted merge, rows are there twice",
    ),
    Mutant(
        "merge-deletes-first", FOLDER,
        "            folder.write_part(name, table, replaces=old)\n            for name in old:\n"
        "                folder.delete(name)",
        "            for one in old:\n                folder.delete(one)\n"
        "            folder.write_part(name, table, replaces=old)",
        LAYER, "an interrupted merge loses rows",
    ),
    Mutant(
        "merge-leaves-parts", FOLDER, "part in there}):\n            self.delete(name)\n",
        "part in there}):\n            pass\n", MERGE,
        "the parts that an interrupted merge left behind are never deleted",
    ),
    Mutant(
        "replaced-parts-are-read", FOLDER, "(p for p in found if p.name not in replaced)", "(p for p in found)", MERGE,
        "rows of replaced parts are there twice",
    ),
    Mutant(
        "merge-of-other-ranks", FOLDER, " and (ranks is None or part.rank in ranks)", "",
        (f"{STORE}::test_a_closed_store_merges_only_its_own_ranks",),
        "a store that is closed merges the parts of other ranks",
    ),
    Mutant(
        "superseded-by-the-next-only", PART, "if later is None else min(later, first[rank, attempt])",
        "if True else min(later, first[rank, attempt])",
        (f"{STORE}::test_an_attempt_that_begins_earlier_supersedes_all_attempts_before_it",),
        "steps that a third attempt repeats are there twice",
    ),
]  # fmt: skip

LOCKING = [
    Mutant(
        "lock-is-no-lock", LOCK, "fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
        (f"{LOCKS}::test_a_forked_process_is_another_writer",), "two processes write to one folder",
    ),
    Mutant(
        "lock-inherited", LOCK, "    _held.clear()\n", "    pass\n",
        (f"{LOCKS}::test_a_forked_process_does_not_have_the_lock_of_its_parent",),
        "a forked process believes that it holds the lock",
    ),
    Mutant(
        "lock-shared-with-forks", LOCK, "os.register_at_fork(after_in_child=_after_fork)", "",
        (f"{LOCKS}::test_a_forked_process_does_not_have_the_lock_of_its_parent",),
        "a forked process keeps the locks of its parent",
    ),
    Mutant(
        "lock-given-up-by-the-first", LOCK, "    if users > 1:", "    if users > 99:",
        (f"{LOCKS}::test_stores_of_one_process_share_the_lock_and_the_last_one_gives_it_up",),
        "the first store that is closed gives up the lock of the others",
    ),
    Mutant(
        "lock-file-stays", LOCK, "            os.unlink(path)  #", "            pass  #",
        (f"{LOCKS}::test_a_rig_gives_the_lock_up_when_it_is_detached",), "the file of the lock is left behind",
    ),
    Mutant(
        "lock-through-a-link", LOCK, "| os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW", "| os.O_CREAT | os.O_CLOEXEC",
        (f"{LOCKS}::test_a_planted_link_is_not_followed",), "a file that a link points to is overwritten",
    ),
    Mutant(
        "lock-on-a-deleted-file", LOCK,
        "if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(descriptor)):", "if True:",
        (f"{LOCKS}::test_a_lock_on_a_file_that_its_last_holder_deleted_is_not_a_lock",),
        "a process holds a lock that no other process can see",
    ),
]  # fmt: skip

MUTANTS = [*ATOMIC_FILE, *READING, *MERGING, *LOCKING]
