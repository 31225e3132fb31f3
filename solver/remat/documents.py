"""Reading and writing JSON documents safely: gzip, standard input, bounds, atomic writes."""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

from remat.errors import InstanceError, RematError

LARGEST_DOCUMENT = 4 * 2**30
"""Most bytes of JSON, after decompression, that are read."""

_GZIP_MAGIC = b"\x1f\x8b"


class _Duplicate:
    """Stands in a parsed document for an object with a duplicate key."""

    __slots__ = ("items", "key")

    def __init__(self, key: str, items: list[tuple[str, Any]]) -> None:
        self.key = key
        self.items = items


class _Long:
    """Stands in a parsed document for a whole number of too many digits."""

    __slots__ = ("digits",)

    def __init__(self, digits: int) -> None:
        self.digits = digits


def read_document(source: str | os.PathLike[str] | IO[Any], what: str = "instance") -> Any:
    """Read JSON from a path, ``-`` (standard input) or an open file; gzip is recognised by its content.

    Numbers with a fraction or an exponent come back as `Decimal`, so that sizes are exact.

    Raises
    ------
    InstanceError
        For anything that is not one well-formed JSON document without duplicate keys.
    """
    name, data = _read_bytes(source, what)
    return parse_document(data, name)


def parse_document(data: bytes, name: str) -> Any:
    """Parse the bytes of one JSON document (see `read_document`)."""
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
        document = json.loads(data.decode("utf-8-sig"), object_pairs_hook=pairs, parse_float=Decimal)
    except RecursionError:
        raise InstanceError(f"{name}: nested too deeply to be a document of remat") from None
    except UnicodeDecodeError as error:
        raise InstanceError(f"{name}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InstanceError(
            f"{name}: malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except InvalidOperation:
        raise InstanceError(f"{name}: a number whose exponent is out of all range") from None
    except ValueError as error:  # an integer of more digits than Python converts
        _refuse_long_numbers(data, name)
        raise InstanceError(f"{name}: {str(error).partition(';')[0]}") from None
    if duplicates:
        path, key = _find_duplicate(document)
        raise InstanceError(f"duplicate key {key[:60]!r} in {name}", path)
    return document


def _refuse_long_numbers(data: bytes, name: str) -> None:
    """Raise an error that says where a whole number has more digits than Python converts."""
    most = sys.get_int_max_str_digits()

    def number(text: str) -> Any:
        digits = len(text.lstrip("-"))
        return _Long(digits) if digits > most else 0

    stack: list[tuple[str, Any]] = []
    with suppress(ValueError, RecursionError):  # what follows the number may be wrong, too
        stack.append(("$", json.loads(data.decode("utf-8-sig"), parse_int=number, parse_float=lambda text: 0)))
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


def _read_bytes(source: str | os.PathLike[str] | IO[Any], what: str) -> tuple[str, bytes]:
    if isinstance(source, (str, os.PathLike)):
        if os.fspath(source) == "-":
            return "standard input", _bounded(sys.stdin.buffer, "standard input")
        path = Path(source)
        try:
            with path.open("rb") as file:
                return str(path), _bounded(file, str(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise InstanceError(f"cannot read {what} {str(path)!r}: {reason}") from None
        except ValueError as error:  # an embedded null byte
            raise InstanceError(f"cannot read {what}: {error}") from None
    name = str(getattr(source, "name", what))
    return name, _bounded(source, name)


def _bounded(file: IO[Any], name: str) -> bytes:
    data = file.read(LARGEST_DOCUMENT + 1)
    if isinstance(data, str):
        data = data.encode()
    if data[:2] == _GZIP_MAGIC:
        data = _decompressed(data, name)
    if len(data) > LARGEST_DOCUMENT:
        raise InstanceError(f"{name}: more than {LARGEST_DOCUMENT // 2**30} GiB of JSON")
    return bytes(data)


def _decompressed(data: bytes, name: str) -> bytes:
    import io

    try:
        # read(n) stops there: a small file cannot unpack into more memory than the bound.
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
            return unpacked.read(LARGEST_DOCUMENT + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise InstanceError(f"{name}: damaged gzip file ({error})") from None


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    """Write a file through a temporary neighbour, so that a failure leaves the old file as it was.

    ``.gz`` paths are compressed (without a time stamp: equal content gives equal files).
    """
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
        # mkstemp makes private files; the result gets the usual permissions, or those of the file it replaces.
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
