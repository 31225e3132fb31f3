"""Lists of a document kept as text: converted to records part by part, or parsed to a list on first access.

A parsed list of a million objects costs some hundred bytes and a microsecond for each key of each object. Records that
are immediately converted to columns avoid both. Anything that is not a well-formed document without duplicate keys is
left to `remat.documents`, which reports the error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast, overload

from remat.documents import QUICK, Unparsed, keys_in, parsed_quickly

PART = 1 << 18
"""Characters of a part, without the object at its end."""

_BETWEEN = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*\{")
_LONG = 2150
"""Half of the maximum number of characters in a number."""


def opened(unparsed: Unparsed, *keys: str) -> Any:
    """Return a document whose lists under these keys may be a `ListText`; they are lists if that is faster.

    Short texts are parsed as a whole.
    """
    data = unparsed.data
    spans = _lists_in(data, keys) if len(data) >= QUICK and not _has_long_number(data) else {}
    if not spans:
        return unparsed.parse()
    head, at = [], 0
    for begin, end in sorted(spans.values()):
        head += [data[at:begin], b"null"]
        at = end
    document = parsed_quickly(b"".join([*head, data[at:]]))
    if not isinstance(document, dict):
        return unparsed.parse()
    return document | {key: ListText(unparsed, key, *span) for key, span in spans.items()}


def _lists_in(data: bytes, keys: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the begin and the end of the lists under some keys of a document."""
    import msgspec
    import numpy as np

    head = msgspec.defstruct("Head", [(key, msgspec.Raw, msgspec.Raw(b"")) for key in keys])
    try:
        found = msgspec.json.decode(data, type=head)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    spans: dict[str, tuple[int, int]] = {}
    whole = int(np.frombuffer(data, dtype=np.uint8).ctypes.data)
    for key in keys:
        raw = np.frombuffer(getattr(found, key), dtype=np.uint8)
        begin = int(raw.ctypes.data) - whole
        if len(raw) >= 2 and raw[0] == ord("[") and begin >= 0 and begin + len(raw) <= len(data):
            spans[key] = (begin, begin + len(raw))
    return spans


def _has_long_number(data: bytes) -> bool:
    """Whether a number may have more digits than permitted: it would cover two sampled positions completely."""
    import numpy as np

    numeric = np.zeros(256, dtype=bool)
    numeric[list(b"0123456789+-.eE")] = True
    text = np.frombuffer(data, dtype=np.uint8)
    places = np.arange(0, max(0, len(text) - 64), _LONG)
    for offset in range(64):
        places = places[numeric[text[places + offset]]]
        if not len(places):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Part:
    """Some objects of a list, and their text.

    If `typed`, all are records; otherwise some cannot be records, and all stay as they are parsed.
    """

    records: list[Any]
    text: bytes
    typed: bool = True

    def has_keys(self, count: int) -> bool:
        """Whether the text has exactly `count` keys, and therefore no repeated key."""
        # Usually each colon belongs to a key; if strings contain colons, too, `keys_in` decides.
        return _count(self.text, b":") == count or keys_in(self.text) == count


def _count(text: bytes | memoryview, letter: bytes) -> int:
    """Count a frequent letter: several times as fast as `bytes.count`."""
    import numpy as np

    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == letter[0]))


class ListText(Sequence[Any]):
    """A list of a document, kept as text until it is needed."""

    def __init__(self, unparsed: Unparsed, key: str, begin: int, end: int) -> None:
        self._unparsed, self._key, self._begin, self._end = unparsed, key, begin, end
        self._listed: list[Any] | None = None

    def document(self) -> Any:
        """Return the whole document as `remat.documents.read_document` does, with its errors."""
        return self._unparsed.parse()

    def listed(self) -> list[Any]:
        """Return the list as `remat.documents.read_document` does, with its errors."""
        if self._listed is None:
            self._listed = cast("list[Any]", self.document()[self._key])
        return self._listed

    def __len__(self) -> int:
        return len(self.listed())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.listed()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.listed())

    def most(self) -> int:
        """Return an upper bound on the number of objects: each has a brace."""
        return _count(memoryview(self._unparsed.data)[self._begin : self._end], b"{")

    def parts(self, record: Any) -> Iterator[Part]:
        """Yield the list as records of a msgspec type, part by part.

        Raises
        ------
        msgspec.MsgspecError
            If the text is invalid.
        ValueError
            If an object of a part has a repeated key, or a similar problem.
        """
        import msgspec

        decoder = msgspec.json.Decoder(list[record])
        for begin, end in self._cuts():
            text = b"[%b]" % self._unparsed.data[begin:end]
            try:
                part = Part(decoder.decode(text), text)
            except msgspec.ValidationError:
                objects = parsed_quickly(text)
                if objects is None:
                    raise ValueError("the ordinary reader reports the error") from None
                part = Part(objects, text, typed=False)
            yield part

    def _cuts(self) -> Iterator[tuple[int, int]]:
        """Yield parts of whole objects. A cut within a string or an object leaves two parts that are invalid JSON."""
        begin, end = self._begin + 1, self._end - 1
        while begin < end:
            cut = _BETWEEN.search(self._unparsed.data, begin + PART, end)
            if cut is None:
                yield begin, end
                return
            yield begin, cut.start() + 1
            begin = cut.end() - 1
