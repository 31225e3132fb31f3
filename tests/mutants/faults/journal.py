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
            "        self._synced = time.monotonic()\n\n    def _unwritable",
            "\n    def _unwritable",
            "the next seconds' lines wait again",
        ),
        (
            JOURNAL,
            ' or not isinstance(document["key"], str):',
            ":",
            "a key is a text",
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
            "if isinstance(value, dict) and not all(type(size) is int for size in value.values()):",
            "if isinstance(value, dict) and not any(type(size) is int for size in value.values()):",
            "all sizes are whole numbers",
        ),
    ],
)
