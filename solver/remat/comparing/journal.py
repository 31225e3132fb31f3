"""The journal: what has been answered, one line of JSON each, only ever appended.

A line goes to the operating system whole and at once, so a run that is killed loses at most the job of the line that
it was writing; every `SYNC` seconds the file goes to the disk, so a machine that loses power loses no more than that.
A torn last line is cut off when the journal is opened again. Lines that are damaged otherwise are skipped and
counted, and their jobs run again: each ends with a checksum, since a changed digit would still be a line of JSON. A job
that stands there twice counts with its last line.
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
"""Every line carries its checksum, the first one too."""

SCHEMA_1 = "remat.journal/1"
"""Of journals written before: a line without a checksum, from an editor, is taken as it is."""

SYNC = 5.0
"""Most seconds of answers that a power failure may take. An fsync for each line would cost more than a short job."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""One for all lines: `json.dumps` would build it anew for each."""

_CHECKSUM = b',"crc":"'


class Journal:
    """An open journal; at most one process may have it open.

    Parameters
    ----------
    path : path
        Made if it is not there; its folder must be.

    Attributes
    ----------
    answers : dict of key to Answer
        What stood there, and what was added since.
    damaged : int
        Lines that could not be read.

    Raises
    ------
    remat.RematError
        If it cannot be opened, is no journal, or another process has it open.
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
            if not stat.S_ISREG(os.fstat(self._file).st_mode):  # a pipe would never end, nor would /dev/zero
                raise self._foreign()
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        with suppress(ImportError):  # not on Windows, where nobody locks the journal
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
            if not any(header.startswith(data) for header in (_HEADER, _HEADER_1)):  # torn: no reason to stop
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
            self.damaged += 1  # damaged there, too
        if whole < len(data):
            self._truncate(whole)

    def _foreign(self) -> RematError:
        return RematError(f"{str(self.path)!r} is no journal of remat ({SCHEMA}); give another folder with -o")

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
        """Append one answer; `about` names the job for human readers.

        Raises
        ------
        remat.RematError
            If the line cannot be written whole (a full disk); the journal stays readable.
        """
        self._append(_signed({"key": key, **about, "answer": answer.to_dict()}))
        self.answers[key] = answer

    def _append(self, line: bytes) -> None:
        written = 0
        try:
            # One write for a line: a kill between two lines leaves none torn. Only a disk that fills up takes a part
            # of it; it says so when it is asked to take the rest.
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
            if error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT):  # others: a file system that cannot do it
                raise self._unwritable(error) from None
        self._synced = time.monotonic()

    def _unwritable(self, error: OSError) -> RematError:
        return RematError(
            f"cannot write journal {str(self.path)!r}: {error.strerror or error}; what it has stays good, and the same "
            "command goes on from there"
        )

    def close(self) -> None:
        """Bring everything to the disk and give the file up."""
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
    # Lone surrogates, as in names of files that are not UTF-8, become JSON escapes, and come back as they were.
    return _ENCODER.encode(document).encode("utf-8", "backslashreplace") + b"\n"


def _signed(document: Mapping[str, Any]) -> bytes:
    """Return a line that ends with the checksum of what stands before it."""
    body = _line(document)[:-2]
    return body + _CHECKSUM + b'%08x"}\n' % zlib.crc32(body)


def _intact(line: bytes, *, unsigned: bool) -> bool:
    """Whether a line has the checksum that it says; `unsigned`: whether one without is good, too."""
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
