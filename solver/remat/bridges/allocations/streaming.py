"""Objects of one list of a large JSON file, one by one, in memory that does not grow with the file."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

from remat.errors import InstanceError
from remat.messages import brief

LARGEST = 2**33
"""Bytes of a file, unpacked."""

MOST_OF_VALUE = 2**24
"""Largest number of characters of one object of the list, or of another value of the document."""

_CHUNK = 2**20
_SPACE = re.compile(r"[ \t\r\n]*")


def stream_objects(path: str, key: str, *, whole: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list.

    Parameters
    ----------
    path : str
        A JSON file (``.gz`` too): an object that has the list under `key`, or the list itself.
    key : str
    whole : bool
        Whether the file may be the list itself.

    Raises
    ------
    InstanceError
        If the file cannot be read, is not such JSON, or has an object of over 16 Mi characters; the message has the
        number of the object.
    """
    try:
        with _opened(path) as file:
            yield from _Reader(file, path).objects(key, whole=whole)
    except (OSError, EOFError, zlib.error) as error:
        raise InstanceError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise InstanceError(f"{path}: not UTF-8") from None


def _opened(path: str) -> IO[str]:
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if packed else open(path, encoding="utf-8")


class _Reader:
    """A window on the text, which moves on."""

    def __init__(self, file: IO[str], path: str) -> None:
        self.file, self.path = file, path
        self.text, self.at, self.read, self.ended = "", 0, 0, False
        self.decoder = json.JSONDecoder()

    def objects(self, key: str, *, whole: bool) -> Iterator[dict[str, Any]]:
        """Find the list, and yield its objects."""
        sign = self._peek()
        if sign == "[" and whole:
            self.at += 1
            yield from self._items()
            return
        if sign != "{":
            raise InstanceError(
                f"{self.path}: expected a JSON object with {key!r}, not {brief(sign or 'an empty file')}"
            )
        self.at += 1
        found = False
        while self._peek() != "}":
            name = self._value(key)
            if not isinstance(name, str):
                raise InstanceError(f"{self.path}: expected a key, not {brief(name)}")
            self._sign(":")
            if name == key and not found:
                self._sign("[")
                yield from self._items()
                found = True
            else:
                self._value(name)
            if self._peek() != ",":
                break
            self.at += 1
        if not found:
            raise InstanceError(f"there is no list of objects in {self.path}", f"$.{key}")

    def _items(self) -> Iterator[dict[str, Any]]:
        if self._peek() == "]":
            self.at += 1
            return
        number = 0
        while True:
            value = self._value(f"object {number}")
            if not isinstance(value, dict):
                raise InstanceError(f"{self.path}: object {number}: expected an object, not {brief(value)}")
            yield value
            number += 1
            sign = self._peek()
            self.at += 1
            if sign == "]":
                return
            if sign != ",":
                raise InstanceError(f"{self.path}: object {number}: malformed JSON: expected a comma or ]")

    def _sign(self, sign: str) -> None:
        if self._peek() != sign:
            raise InstanceError(f"{self.path}: malformed JSON: expected {sign}")
        self.at += 1

    def _peek(self) -> str:
        """Return the next character that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
            if self.at < len(self.text) or not self._more():
                return self.text[self.at : self.at + 1]

    def _value(self, what: str) -> Any:
        self._peek()
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if len(self.text) - self.at > MOST_OF_VALUE:
                    raise InstanceError(f"{self.path}: {what}: more than {MOST_OF_VALUE:,} characters") from None
                if not self._more():
                    raise InstanceError(f"{self.path}: {what}: malformed JSON: {error.msg}") from None
                continue
            except (RecursionError, ValueError):
                raise InstanceError(f"{self.path}: {what}: nested too deeply, or a number of too many digits") from None
            if end == len(self.text) and self._more():  # a number may go on
                continue
            self.at = end
            return value

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        if self.ended:
            return False
        # As much again as there is: an object of n characters is looked at log(n) times.
        chunk = self.file.read(max(_CHUNK, len(self.text) - self.at))
        self.read += len(chunk)
        if self.read > LARGEST:
            raise InstanceError(f"{self.path}: more than {LARGEST:,} characters")
        self.ended = not chunk
        self.text, self.at = self.text[self.at :] + chunk, 0
        return bool(chunk)
