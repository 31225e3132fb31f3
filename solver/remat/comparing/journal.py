"""The journal: all answers, one line of JSON each; lines are only appended.

Each line is written to the operating system in one piece and immediately. Therefore a killed run loses at most the job
whose line it was writing. Every `SYNC` seconds the file is synchronised to the disk, which bounds the loss on a power
failure. An incomplete last line is removed when the journal is opened again. Other damaged lines are skipped and
counted, and their jobs run again. Each line ends with a checksum, because a line with a changed digit is still valid
JSON. If a job has several lines, the last one counts.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from remat.comparing.cells import Answer
from remat.errors import RematError

SCHEMA = "remat.journal/2"
"""Header of journals in which every line, including the first, has a checksum."""

SCHEMA_1 = "remat.journal/1"
"""Header of older journals: lines without a checksum are accepted."""

SYNC = 5.0
"""Maximum seconds of answers lost in a power failure. An fsync for each line would cost more than a short job."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""One encoder for all lines: `json.dumps` would create one for each."""

_CHECKSUM = b',"crc":"'


class Journal:
    """An open journal; only one process at a time may have it open.

    Parameters
    ----------
    path : path
        Created if it does not exist; its folder must exist.

    Attributes
    ----------
    answers : dict of key to Answer
        Answers from the file, and those added since.
    damaged : int
        Number of lines that could not be read.

    Raises
    ------
    remat.RematError
        If the file cannot be opened, is not a journal, or is open in another process.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.answers: dict[str, Answer] = {}
        self.damaged = 0
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        except OSError as error:
            raise RematError(f"cannot open journal {str(self.path)!r}: {error.strerror or error}") from None
        self._synced = time.monotonic()
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):  # pipes and /dev/zero never end
                raise self._foreign()
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        with suppress(ImportError):  # Windows has no fcntl; there the journal is not locked
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RematError(
                    f"journal {str(self.path)!r} is in use by another run; wait for it, or give another folder with -o"
                ) from None
            except OSError:  # a file system without locks
                pass

    def _read(self) -> None:
        data = b""
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].split(b"\n")[:-1]
        if not lines:
            if not any(header.startswith(data) for header in (_HEADER, _HEADER_1)):  # incomplete: no reason to stop
                raise self._foreign()
            self._truncate(0)
            self._append(_HEADER)
            return
        header = lines[0] + b"\n"
        for line in lines[1:]:
            self._take(line, unsigned=header == _HEADER_1)
        if header not in (_HEADER, _HEADER_1):
            if not self.answers or (_parsed(lines[0]) is not None and _CHECKSUM not in header):
                raise self._foreign()
            self.damaged += 1  # the incomplete line counts as damaged
        if whole < len(data):
            self._truncate(whole)

    def _foreign(self) -> RematError:
        return RematError(f"{str(self.path)!r} is not a journal of remat ({SCHEMA}); give another folder with -o")

    def _take(self, line: bytes, *, unsigned: bool) -> None:
        document = _parsed(line)
        try:
            if document is None or not _intact(line, unsigned=unsigned) or not isinstance(document["key"], str):
                raise ValueError("no entry")
            self.answers[document["key"]] = Answer.from_dict(document["answer"])
        except (KeyError, TypeError, ValueError, AttributeError):
            self.damaged += 1

    def _truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise self._unwritable(error) from None

    def add(self, key: str, answer: Answer, about: Mapping[str, Any]) -> None:
        """Append one answer; `about` describes the job for human readers.

        Raises
        ------
        remat.RematError
            If the line cannot be written completely (a full disk); the journal stays readable.
        """
        self._append(_signed({"key": key, **about, "answer": answer.to_dict()}))
        self.answers[key] = answer

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            # One write per line: a kill between two lines leaves no incomplete line. Only a full disk accepts part of a
            # line; it reports the error when the rest is written.
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise self._unwritable(error) from None
        if time.monotonic() - self._synced > SYNC:
            self._sync()

    def _sync(self) -> None:
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):  # others: a file system without fsync
                raise self._unwritable(error) from None
        self._synced = time.monotonic()

    def _unwritable(self, error: OSError) -> RematError:
        return RematError(
            f"cannot write journal {str(self.path)!r}: {error.strerror or error}; its entries are intact, and the same "
            "command resumes from them"
        )

    def close(self) -> None:
        """Write all data to the disk and close the file."""
        with suppress(RematError):
            self._sync()
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(document: Mapping[str, Any]) -> bytes:
    # Lone surrogates, as in file names that are not UTF-8, become JSON escapes, and are restored on reading.
    return _ENCODER.encode(document).encode("utf-8", "backslashreplace") + b"\n"


def _signed(document: Mapping[str, Any]) -> bytes:
    """Return a line that ends with the checksum of its content."""
    body = _line(document)[:-2]
    return body + _CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def _intact(line: bytes, *, unsigned: bool) -> bool:
    """Whether a line matches its checksum; with `unsigned`, a line without one is accepted."""
    body, mark, end = line.rpartition(_CHECKSUM)  # within a JSON string the quotes would be escaped
    return end[:8] == b"%08x" % zlib.crc32(body) if mark else unsigned


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


_HEADER = _signed({"schema": SCHEMA})
_HEADER_1 = _line({"schema": SCHEMA_1})
