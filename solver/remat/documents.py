"""Safe reading and writing of JSON documents: gzip, standard input, limits, atomic writes."""

from __future__ import annotations

import codecs
import gc
import io
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from heapq import heappop, heappush
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from remat.errors import InstanceError, RematError
from remat.messages import brief


class Limit(NamedTuple):
    """The limits of a document.

    Attributes
    ----------
    text : int
        Bytes of JSON, after decompression.
    memory : int
        Bytes of memory for the parsed document, by the bound of `_Toll`.
    """

    text: int
    memory: int


LIMITS = {"instance": Limit(2**29, 3 * 2**29), "machine": Limit(2**26, 2**28), "schedule": Limit(2**30, 13 * 2**29)}
"""Limits by type of document, for a million tasks or ten million steps (docs/reference/formats.md)."""

MOST_KEYS = 100_000
"""Maximum number of different keys of objects in a document."""

MOST_DIGITS = 4300
"""Maximum digits of a number; by default, Python does not convert longer integers."""

DEAREST = 256
"""Upper bound on the bytes of memory per character of JSON: see `_Toll.memory`."""

_CHUNK = 2**20
_SAMPLE = 2**11
_FEW = 32
_UNPACKED, _RATIO = 2**23, 100
"""Maximum size of an unpacked file: in bytes, or as a multiple of its packed size."""

_GZIP_MAGIC = b"\x1f\x8b"
_KEY = re.compile(rb'"([^"]{0,200})"[ \t\r\n]*:')


class _Duplicate:
    """Replaces an object with a duplicate key in a parsed document."""

    __slots__ = ("items", "key")

    def __init__(self, key: str, items: list[tuple[str, Any]]) -> None:
        self.key = key
        self.items = items


class _Long:
    """Replaces an integer with too many digits in a parsed document."""

    __slots__ = ("digits",)

    def __init__(self, digits: int) -> None:
        self.digits = digits


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while many objects without cycles are created, which it would scan repeatedly."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_document(source: str | os.PathLike[str] | IO[Any], what: str = "instance") -> Any:
    """Read JSON from a path, ``-`` (standard input) or an open file; gzip is recognised by its content.

    Numbers with a fraction or an exponent are returned as `Decimal`, so that sizes are exact. `what` is a key of
    `LIMITS`. A document that would need more memory than its limit is rejected while it is unpacked, before parsing.

    Raises
    ------
    InstanceError
        For input that is not one well-formed JSON document without duplicate keys.
    """
    return read_unparsed(source, what).parse()


@dataclass(frozen=True, slots=True)
class Unparsed:
    """The bytes of a JSON document: read, unpacked and within the limits, but not parsed.

    Attributes
    ----------
    name : str
        Name of the document in messages.
    data : bytes
    what : str
        A key of `LIMITS`.
    """

    name: str
    data: bytes
    what: str = "instance"

    def parse(self) -> Any:
        """Return the document as `read_document` does."""
        _Toll(self.name, self.what).check_keys(self.data)
        return _parsed(self.data, self.name)


def read_unparsed(source: str | os.PathLike[str] | IO[Any], what: str = "instance") -> Unparsed:
    """Read a document from the sources of `read_document`, for callers that parse it themselves."""
    name, data = _read_all(source, what, lambda name: _Toll(name, what).charge)
    return Unparsed(name, data, what)


def read_text(source: str | os.PathLike[str] | IO[Any], what: str, largest: int) -> tuple[str, str]:
    """Read a text of at most `largest` bytes as `read_bytes` does.

    Raises
    ------
    InstanceError
        If the text cannot be read, is damaged, is too large, or is not UTF-8.
    """
    name, data = read_bytes(source, what, largest)
    return name, _decoded(data, name)


def read_bytes(source: str | os.PathLike[str] | IO[Any], what: str, largest: int) -> tuple[str, bytes]:
    """Read at most `largest` bytes from the sources of `read_document`; return the name for messages, and the bytes.

    Raises
    ------
    InstanceError
        If the bytes cannot be read, are damaged, or are too large.
    """

    def charging(name: str) -> Callable[[bytes], None]:
        total = 0

        def charge(chunk: bytes) -> None:
            nonlocal total
            total += len(chunk)
            if total > largest:
                raise InstanceError(
                    f"{name}: more than {_shown(largest)}, the limit for {_article(what)} of this format"
                )

        return charge

    return _read_all(source, what, charging)


def _read_all(
    source: str | os.PathLike[str] | IO[Any], what: str, charging: Callable[[str], Callable[[bytes], None]]
) -> tuple[str, bytes]:
    """Return the name and the bytes of a source; each chunk is charged before the next one is read."""
    if not isinstance(source, (str, os.PathLike)):
        if not callable(getattr(source, "read", None)) or isinstance(source, type):
            raise InstanceError(f"{what}: expected a path, an open file or a dict, not {brief(source)}")
        name = str(getattr(source, "name", what))
        return name, _joined(source, name, charging(name))
    if os.fspath(source) == "-":
        name = "standard input"
        return name, _joined(sys.stdin.buffer, name, charging(name))
    path = Path(source)
    try:
        with path.open("rb") as file:
            return str(path), _joined(file, str(path), charging(str(path)))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InstanceError(f"cannot read {what} {str(path)!r}: {reason}") from None
    except ValueError as error:
        if isinstance(error, InstanceError):
            raise
        raise InstanceError(f"cannot read {what}: {error}") from None  # an embedded null byte


def parse_document(data: bytes, name: str) -> Any:
    """Parse the bytes of one JSON document (see `read_document`)."""
    return Unparsed(name, _joined(io.BytesIO(data), name, _Toll(name, "instance").charge)).parse()


class _Toll:
    """Bounds the memory of a parsed document, from counts of a few characters in its text.

    In JSON each object and list has its brace, each entry its comma or colon, and each string two quotes. The charges
    are upper bounds for CPython 3.11 to 3.13. Lists and dictionaries grow in steps. Keys are stored once; therefore
    documents with many different keys are rejected. These characters inside strings only increase the bound.
    """

    def __init__(self, name: str, what: str) -> None:
        self._name, self._what = name, what
        self._limit = LIMITS[what]
        self._braces = self._brackets = self._commas = self._colons = self._quotes = self._fractions = 0
        self._bytes = self._content = 0
        self._width = 1
        self._escape = b""
        self._keys: set[bytes] | None = None
        self._usual: set[bytes] = set()
        self._waiting: list[bytes] = []

    def charge(self, chunk: bytes) -> None:
        """Count the characters of a chunk; reject the document when it exceeds its limit.

        Counting starts only when a text of that length could exceed the limit.
        """
        self._bytes += len(chunk)
        if self._bytes > self._limit.text:
            raise self._refused(f"more than {_shown(self._limit.text)} of JSON")
        self._waiting.append(chunk)
        if self._bytes * DEAREST > self._limit.memory and self.memory > self._limit.memory:
            raise self._refused(f"it would take more than {_shown(self._limit.memory)} of memory")

    def check_keys(self, data: bytes) -> None:
        """Reject a text with too many different keys; the bound is not valid for them."""
        if len(data) <= 4 * MOST_KEYS:  # each key has two quotes, a colon and a value
            return
        self.note_keys(data)
        assert self._keys is not None
        if len(self._keys) > MOST_KEYS:
            raise self._refused(f"more than {MOST_KEYS:,} different keys")

    def note_keys(self, data: bytes) -> None:
        """Find all keys; otherwise the bound assumes as many keys as colons."""
        self._keys = set()
        for begin in range(0, len(data), _CHUNK):
            self._note_keys(data[begin : begin + _CHUNK])

    def _count(self, chunk: bytes) -> None:
        import numpy as np

        text = np.frombuffer(chunk, dtype=np.uint8)

        def count(letter: str) -> int:
            return int(np.count_nonzero(text == ord(letter)))

        self._braces += count("{")
        self._brackets += count("[")
        self._commas += count(",")
        self._colons += count(":")
        escapes = b"\\" in chunk
        quotes = self._quotes_of(chunk, count('"'), escapes=escapes)
        self._fractions += count(".")
        exponents = (text[:-1] - np.uint8(ord("0")) < 10) & (text[1:] | 32 == ord("e"))
        self._fractions += int(np.count_nonzero(exponents))
        largest = int(text.max(initial=0))
        width = 4 if largest >= 0xF0 else 2 if largest >= 0x80 else 1
        self._width = max(self._width, width)
        if quotes or self._quotes % 2:  # some characters are, or may be, in strings
            self._content += len(chunk) * (4 if not quotes or (escapes and b"\\u" in chunk) else width)

    def _note_keys(self, chunk: bytes) -> None:
        """Add the keys of a chunk to the known ones.

        Usually a few keys are repeated, and each occurrence has its colon. The keys at the beginning of the chunk, or
        of the previous chunk, may occur as often as there are colons. Then the chunk contains no other key.
        """
        usual, seen = set[bytes](), 0
        for match in _KEY.finditer(chunk, 0, _SAMPLE):
            usual.add(match[1])
            seen = match.end()
        left = chunk.count(b":", seen) - _colons_of(usual, chunk, seen)
        if left and len(self._usual) <= _FEW:
            left -= _colons_of(self._usual - usual, chunk, seen)
            usual |= self._usual
        if left:
            usual = {match[1] for match in _KEY.finditer(chunk, 0, seen)}.union(_KEY.findall(chunk, seen))
        self._usual = usual
        assert self._keys is not None
        self._keys |= usual

    def _quotes_of(self, chunk: bytes, quotes: int, *, escapes: bool) -> int:
        """Count the quotes of a chunk that begin or end strings; `quotes` is the number of all quotes."""
        if escapes or self._escape:
            chunk = (self._escape + chunk).replace(b"\\\\", b"")
            self._escape = b"\\" if chunk.endswith(b"\\") else b""
            quotes = chunk.replace(b'\\"', b"").count(b'"')
        self._quotes += quotes
        return quotes

    @property
    def memory(self) -> int:
        """Maximum bytes for the text and its parsed form."""
        for chunk in self._waiting:
            self._count(chunk)
        self._waiting.clear()
        keys = min(self._colons, MOST_KEYS) if self._keys is None else len(self._keys)
        strings = self._quotes // 2
        numbers = max(0, self._commas + 1 - max(0, strings - self._colons))
        decimals = min(numbers, self._fractions)
        beyond = max(0, self._colons - 5 * self._braces)  # the price of an object includes five entries
        entries = max(0, self._commas - self._colons + self._braces)
        containers = 184 * self._braces + 75 * beyond + 88 * self._brackets + 16 * entries
        values = 64 * max(0, strings - self._colons) + 112 * decimals + 32 * (numbers - decimals)
        return self._bytes * self._width + self._content + containers + values + 160 * keys

    def _refused(self, why: str) -> InstanceError:
        remedy = {
            "schedule": "a schedule of ten million steps fits, so this may be no schedule",
            "machine": "a machine of thousands of memories fits, so this may be no machine",
        }.get(self._what, "an instance of a million tasks fits; `repeat` and the kind tree say more with less")
        return InstanceError(f"{self._name}: {why}, the limit for {_article(self._what)}; {remedy}")


def _colons_of(keys: set[bytes], chunk: bytes, begin: int) -> int:
    return sum(chunk.count(b'"%b":' % key, begin) for key in keys)


def _article(what: str) -> str:
    return f"an {what}" if what[0] in "aeiou" else f"a {what}"


def _shown(size: int) -> str:
    return f"{size / 2**30:g} GiB" if size >= 2**30 else f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size:,} bytes"


def _decimal(text: str) -> Decimal:
    if len(text) > MOST_DIGITS:
        raise _LongNumberError(f"a number of {len(text):,} characters; at most {MOST_DIGITS:,} are read")
    return Decimal(text)


class _LongNumberError(Exception):
    """Stops the parsing of a document at a number that is too long."""


QUICK = 2**16
"""Minimum characters of a document for which importing a faster parser pays."""


def _parsed(data: bytes, name: str) -> Any:
    document = parsed_quickly(data) if len(data) >= QUICK else None
    return _parsed_strictly(_decoded(data, name), name) if document is None else document


def parsed_quickly(data: bytes) -> Any:
    """Parse a document in the usual form; None otherwise: then the strict parser reports the error."""
    import msgspec

    try:
        with collector_paused():
            document = msgspec.json.Decoder(float_hook=_decimal).decode(data)
            # A repeated key would be lost: then the text has more keys than the objects have entries.
            return document if _entries(document, data.count(b"{")) == keys_in(data) else None
    except (msgspec.MsgspecError, _LongNumberError, RecursionError, ValueError, ArithmeticError):
        return None


def keys_in(data: bytes) -> int:
    """Return an upper bound on the number of keys in the objects of a JSON text; -1 if it needs a closer look.

    A quote followed by a colon within a string counts as a key; therefore the true number may be smaller. If a blank
    precedes a colon, the result is -1.
    """
    if any(blank in data for blank in (b" :", b"\n:", b"\t:", b"\r:")):
        return -1
    return data.count(b'":')


def _entries(document: Any, objects: int) -> int:
    """Return the number of entries in all objects of a document, given the number of objects.

    Small parts come first: once all objects are found, the longest lists are not searched further.
    """
    entries = 0
    number = count()
    parts: list[tuple[int, int, list[Any]]] = [(1, next(number), [document])]
    while parts and objects > 0:
        _, _, nodes = heappop(parts)
        found = [node for node in nodes if type(node) is dict]
        entries += sum(map(len, found))
        objects -= len(found)
        if objects <= 0:
            break
        inside = [*chain.from_iterable(map(dict.values, found))]
        for more in (inside, [node for each in nodes if type(each) is list for node in each]):
            if more:
                heappush(parts, (len(more), next(number), more))
    return entries


def _parsed_strictly(text: str, name: str) -> Any:
    duplicates = False

    def pairs(items: list[tuple[str, Any]]) -> Any:
        nonlocal duplicates
        result = dict(items)
        if len(result) < len(items):
            duplicates = True
            seen: set[str] = set()
            key = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            return _Duplicate(key, items)
        return result

    try:
        with collector_paused():
            document = json.loads(text, object_pairs_hook=pairs, parse_float=_decimal)
    except RecursionError:
        raise InstanceError(f"{name}: nested too deeply to be a document of remat") from None
    except _LongNumberError as error:
        raise InstanceError(f"{name}: {error}") from None
    except json.JSONDecodeError as error:
        raise InstanceError(
            f"{name}: malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except InvalidOperation:
        raise InstanceError(f"{name}: a number whose exponent is out of all range") from None
    except ValueError as error:  # an integer with more digits than Python converts
        _refuse_long_numbers(text, name)
        raise InstanceError(f"{name}: {str(error).partition(';')[0]}") from None
    if duplicates:
        path, key = _find_duplicate(document)
        raise InstanceError(f"duplicate key {brief(key)} in {name}", path)
    return document


def _refuse_long_numbers(document: str, name: str) -> None:
    """Raise an error that locates an integer with more digits than Python converts."""
    most = sys.get_int_max_str_digits()

    def number(text: str) -> Any:
        digits = len(text.lstrip("-"))
        return _Long(digits) if digits > most else 0

    stack: list[tuple[str, Any]] = []
    with suppress(ValueError, RecursionError):  # the text after the number may be invalid, too
        stack.append(("$", json.loads(document, parse_int=number, parse_float=lambda text: 0)))
    while stack:
        path, node = stack.pop()
        if isinstance(node, _Long):
            message = f"a whole number of {node.digits:,} digits in {name}; at most {most:,} are read"
            raise InstanceError(message, path) from None
        stack.extend(_children(path, node))


def _children(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from ((f"{path}.{key}", child) for key, child in node.items())
    elif isinstance(node, list):
        yield from ((f"{path}[{i}]", child) for i, child in enumerate(node))


def _find_duplicate(document: Any) -> tuple[str, str]:
    stack: list[tuple[str, Any]] = [("$", document)]
    while stack:
        path, node = stack.pop()
        if isinstance(node, _Duplicate):
            return path, node.key
        stack.extend(_children(path, node))
    raise AssertionError("a duplicate key was seen and is not there")


def _joined(file: IO[Any], name: str, charge: Callable[[bytes], None]) -> bytes:
    """Read and unpack a document chunk by chunk; each chunk is charged before the next one is read."""
    pieces: list[bytes] = []
    for chunk in _chunks(file, name):
        charge(chunk)
        pieces.append(chunk)
    return b"".join(pieces).removeprefix(codecs.BOM_UTF8)


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InstanceError(f"{name}: not UTF-8 text (byte {error.start})") from None


def _chunks(file: IO[Any], name: str) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if necessary."""
    first = _read(file, _CHUNK)
    if first[:2] != _GZIP_MAGIC:
        while first:
            yield first
            first = _read(file, _CHUNK)
        return
    import gzip

    packed, total = _Rest(first, file), 0
    try:
        with gzip.GzipFile(fileobj=cast("IO[bytes]", packed)) as unpacked:
            while chunk := unpacked.read(_CHUNK):
                total += len(chunk)
                if total > max(_UNPACKED, _RATIO * packed.taken):
                    grown = f"{packed.taken:,} compressed bytes become more than {_shown(_UNPACKED)}"
                    raise InstanceError(f"{name}: {grown}, and {_RATIO} times as many; unpack the file first")
                yield chunk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InstanceError(f"{name}: damaged gzip file ({error})") from None


def _read(file: IO[Any], size: int) -> bytes:
    data = file.read(size)
    return data.encode() if isinstance(data, str) else bytes(data)


class _Rest:
    """A read-only file whose beginning has already been read."""

    def __init__(self, first: bytes, file: IO[Any]) -> None:
        self._first, self._file = first, file
        self.taken = 0
        """The bytes that were already read."""

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        if self._first:
            taken, self._first = self._first[:size], self._first[size:]
        else:
            taken = _read(self._file, size)
        self.taken += len(taken)
        return taken


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    """Write a file through a temporary file in the same folder; a failure leaves the old file unchanged.

    ``.gz`` paths are compressed (without a time stamp: equal content gives equal files).
    """
    import gzip
    import tempfile

    target = Path(path)
    if target.exists() and not target.is_file() and not target.is_dir():
        _write_in_place(target, write)  # a device or a pipe: replacing it would destroy it
        return
    target = target.resolve()  # through a symbolic link, not over it
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:60]}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as raw:
            if target.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                    write(packed)  # type: ignore[arg-type]
            else:
                write(raw)
        # mkstemp creates private files; the result gets the usual permissions, or those of the file that it replaces.
        os.chmod(temporary, _mode_for(target))
        os.replace(temporary, target)
    except OSError as error:
        raise RematError(f"cannot write {str(target)!r}: {error.strerror or error}") from None
    finally:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)


def _write_in_place(target: Path, write: Callable[[IO[bytes]], None]) -> None:
    try:
        with target.open("wb") as file:
            write(file)
    except OSError as error:
        raise RematError(f"cannot write {str(target)!r}: {error.strerror or error}") from None


def _mode_for(target: Path) -> int:
    with suppress(OSError):
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_text(path: str | os.PathLike[str], chunks: Iterable[str]) -> None:
    """Write text atomically as UTF-8; ``-`` is standard output."""
    if os.fspath(path) == "-":
        for chunk in chunks:
            sys.stdout.write(chunk)
        sys.stdout.flush()
        return

    def write(file: IO[bytes]) -> None:
        for chunk in chunks:
            file.write(chunk.encode())

    write_atomically(path, write)
