"""The journal: what has been answered, one line of JSON each, only ever appended.

A run that is killed loses at most the line that it was writing: the torn line is cut off when the journal is
opened again. Lines that are damaged otherwise are skipped and counted, and their jobs run again; a job that
stands there twice counts with its last line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from remat.batch.cells import Answer
from remat.errors import RematError

SCHEMA = "remat.journal/1"


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
        try:
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
            if not _line({"schema": SCHEMA}).startswith(data):  # a torn first line is no reason to stop
                raise self._foreign()
            self._truncate(0)
            self._append({"schema": SCHEMA})
            return
        if _parsed(lines[0]) != {"schema": SCHEMA}:
            raise self._foreign()
        if whole < len(data):
            self._truncate(whole)
        for line in lines[1:]:
            self._take(line)

    def _foreign(self) -> RematError:
        return RematError(f"{str(self.path)!r} is no journal of remat ({SCHEMA}); give another folder with -o")

    def _take(self, line: bytes) -> None:
        document = _parsed(line)
        try:
            if document is None or not isinstance(document["key"], str):
                raise ValueError("no entry")
            self.answers[document["key"]] = Answer.from_dict(document["answer"])
        except (KeyError, TypeError, ValueError, AttributeError):
            self.damaged += 1

    def _truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._file, size)
        except OSError as error:
            raise RematError(f"cannot write journal {str(self.path)!r}: {error.strerror or error}") from None

    def add(self, key: str, answer: Answer, about: Mapping[str, Any]) -> None:
        """Append one answer; `about` names the job for human readers.

        Raises
        ------
        remat.RematError
            If the line cannot be written whole (a full disk); the journal stays readable.
        """
        self._append({"key": key, **about, "answer": answer.to_dict()})
        self.answers[key] = answer

    def _append(self, document: Mapping[str, Any]) -> None:
        line = _line(document)
        before = os.fstat(self._file).st_size
        try:
            # One write for a line: a kill between two lines leaves none torn.
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes written")
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, before)
            raise RematError(f"cannot write journal {str(self.path)!r}: {error.strerror or error}") from None

    def close(self) -> None:
        """Bring everything to the disk and give the file up."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
