"""Faults of the journal and of what it keeps."""

from tests.mutants.fault import faults_of

JOURNAL, CELLS = "journal.py", "cells.py"

FAULTS = faults_of(
    "solver/remat/comparing",
    ("tests/comparing/test_journal.py",),
    [
        (
            JOURNAL,
            "if whole < len(data):",
            "if whole > len(data):",
            "a torn last line is cut off",
        ),
        (
            JOURNAL,
            'end[:8] == b"%08x" % zlib.crc32(body)',
            "len(end) >= 8",
            "a checksum is compared",
        ),
        (
            JOURNAL,
            "os.fstat(self._file).st_size - written)",
            "os.fstat(self._file).st_size - len(line))",
            "only what was written of a line is taken back",
        ),
        (
            JOURNAL,
            "written += os.write(self._file, line[written:])",
            "written += os.write(self._file, line)",
            "a line goes on where the last write ended",
        ),
        (
            JOURNAL,
            "if time.monotonic() - self._synced > SYNC:",
            "if time.monotonic() - self._synced < SYNC:",
            "not every line goes to the disk at once",
        ),
        (
            JOURNAL,
            "            if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):",
            "            if error.errno in (errno.EIO, errno.EDQUOT):",
            "a disk that says late that it is full is noticed",
        ),
        (
            JOURNAL,
            "        self._synced = time.monotonic()\n\n    def _unwritable",
            "\n    def _unwritable",
            "the next seconds' lines wait again",
        ),
        (
            JOURNAL,
            "if header is None and self.answers:",
            "if header is None:",
            "other files are left alone",
        ),
        (
            JOURNAL,
            ' or not isinstance(document["key"], str):',
            ":",
            "a key is a text",
        ),
        (
            JOURNAL,
            "fcntl.LOCK_EX | fcntl.LOCK_NB",
            "fcntl.LOCK_SH | fcntl.LOCK_NB",
            "one run at a time",
        ),
        (
            JOURNAL,
            'self.answers[document["key"]] = Answer.from_dict(document["answer"])',
            'self.answers.setdefault(document["key"], Answer.from_dict(document["answer"]))',
            "the last of two lines counts",
        ),
        (
            CELLS,
            'if (value := getattr(self, name)) not in (None, "", {})}',
            "if (value := getattr(self, name))}",
            "a figure of 0 is a figure",
        ),
        (
            CELLS,
            "if type(value) not in _KINDS[name]:",
            "if not isinstance(value, _KINDS[name]):",
            "true is no number",
        ),
        (
            CELLS,
            'if given["outcome"] in SOLVED and "makespan" not in given:',
            'if given["outcome"] is Outcome.FEASIBLE and "makespan" not in given:',
            "what is solved has a makespan",
        ),
        (
            CELLS,
            "if isinstance(value, dict) and not all(type(size) is int for size in value.values()):",
            "if isinstance(value, dict) and not any(type(size) is int for size in value.values()):",
            "all sizes are whole numbers",
        ),
    ],
)
