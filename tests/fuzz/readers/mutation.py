"""Mutations of documents: of the tree that JSON is, of lines and words, and of bytes."""

import gzip
import json
import re

from tests.fuzz.readers import LARGEST_DOCUMENT

WHOLE = (0, 1, -1, 2, 3, 7, 100, 4096, 10**6, 10**7, 2**53 + 1, 2**62, 2**62 + 1, 2**63, 2**64, 10**30, 10**309)
NUMBERS = (*WHOLE, 10**400, 10**4200, 0.5, 0.1, 1.0, 1.5, 1e18, 1e300, 1.7e308, 5e-324, -0.0, -2.5)
RAW = ("1e999999", "1e-999999", "1E+400", "-1e999", "1e99999999999999999999", "NaN", "Infinity", "0.1e9999", "1.0e5")
"""Numbers as a text has them and Python does not."""

TEXTS = (
    *("", "x", "a\nb\r\x1b[31m\x00", "\ud800", "\u202e\u2028", "é" * 200, "'\"\\", "%s{0}", "any", "previous", "null"),
    *("3ms", "1e9999s", "8GB", "8 GiB", "1e9999GB", "12GB/s", "0GB/s", "1/s", "80%", "1e400%", "5min", "-1", "NaN"),
    *("9" * 400, "0." + "0" * 400 + "1", "1e999999", "host", "memory", "input", "true", "1,2,4", "a=b", "٣"),
)
LENGTHS = (61, 301, 1001, 5000, 59_000)
DEPTHS = (20, 600, 5000, 25_000)
_WORD = re.compile(rb"[A-Za-z_]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[^A-Za-z_0-9]")
_RAW = re.compile(r'"@raw:([^"]*)"')


def mutated(data, random, words, *, tree):
    """Return a document that differs somewhat from another.

    Parameters
    ----------
    data : bytes
    random : random.Random
    words : sequence of str
        Keys and names that the reader knows.
    tree : bool
        Whether the document is JSON.
    """
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        changed = _mutated_tree(data, random, words) if tree and random.random() < 0.8 else None
        data = random.choice(_TEXT_MUTATIONS)(data, random, words) if changed is None else changed
        data = data[:LARGEST_DOCUMENT]
    if random.random() < 0.01:
        data = gzip.compress(data if random.random() < 0.7 else b"[" * 10**7, mtime=0)[:LARGEST_DOCUMENT]
    return data


def _mutated_tree(data, random, words):
    """Return the text of a mutated tree; None where the document is no JSON, or too deep."""
    try:
        return _Tree(json.loads(data), random, words).mutated()
    except (ValueError, RecursionError):
        return None


def value(random, words):
    """Draw a value that is now and then what a reader expects."""
    match random.randrange(8):
        case 0 | 1 | 2:
            return random.choice(NUMBERS)
        case 3:
            return "@raw:" + random.choice((*RAW, "9" * random.choice((400, 5000, 50_000))))
        case 4:
            return random.choice(TEXTS)
        case 5:
            return random.choice(words) if words else "x"
        case 6:
            return random.choice((None, True, False, [], {}, [0], [None], {"x": 1}, [[]], [{}]))
    return random.choice(TEXTS[1:4]) * (random.choice(LENGTHS) // 2)


class _Tree:
    """A parsed document, and where its parts are."""

    def __init__(self, document, random, words):
        self.root, self.random, self.words = [document], random, words
        self.places = []
        stack = [self.root]
        while stack and len(self.places) < 5000:
            node = stack.pop()
            for key in node if isinstance(node, dict) else range(len(node)):
                self.places.append((node, key))
                if isinstance(node[key], (dict, list)):
                    stack.append(node[key])

    def mutated(self):
        """Return the text of the document after one mutation."""
        owner, key = self.random.choice(self.places)
        usual = (self._replace, self._replace, self._add, self._add, self._delete, self._number)
        self.random.choice((*usual, self._copy, self._swap, self._rename, self._repeat, self._nest))(owner, key)
        text = json.dumps(self.root[0], ensure_ascii=self.random.random() < 0.9)
        text = _RAW.sub(lambda found: found[1], text)
        return text.encode("utf-8", "surrogatepass")

    def _replace(self, owner, key):
        owner[key] = value(self.random, self.words)

    def _number(self, owner, key):
        found = owner[key]
        if isinstance(found, (int, float)) and not isinstance(found, bool) and abs(found) < 1e300:
            owner[key] = self.random.choice((found + 1, found - 1, -found, found * 2, found / 3, found * 10**6))
        else:
            owner[key] = self.random.choice(NUMBERS)

    def _delete(self, owner, key):
        if owner is not self.root:
            del owner[key]

    def _copy(self, owner, key):
        other, place = self.random.choice(self.places)
        if place in other if isinstance(other, dict) else place < len(other):
            owner[key] = json.loads(json.dumps(other[place]))

    def _swap(self, owner, key):
        other, place = self.random.choice(self.places)
        one, two = owner[key], other[place]
        if not isinstance(one, (dict, list)) and not isinstance(two, (dict, list)):
            owner[key], other[place] = two, one

    def _add(self, owner, key):
        target = owner[key] if isinstance(owner[key], (dict, list)) else owner
        _, place = self.random.choice(self.places)
        found = self.random.choice(self.places)
        new = found[0][found[1]] if self.random.random() < 0.4 else value(self.random, self.words)
        new = json.loads(json.dumps(new))
        if isinstance(target, list):
            target.insert(self.random.randrange(len(target) + 1), new)
        else:
            known = self.words and self.random.random() < 0.7
            target[self.random.choice(self.words) if known else str(place)] = new

    def _rename(self, owner, key):
        if isinstance(owner, dict):
            new = self.random.choice(self.words) if self.words else "x"
            if self.random.random() < 0.3:
                new = self.random.choice(("x", "a\nb", "k ", "\ud800")) * self.random.choice(LENGTHS)
            owner[new[:59_000]] = owner.pop(key)

    def _repeat(self, owner, key):
        if isinstance(owner, list):
            size = len(json.dumps(owner[key])) + 2
            most = min(LARGEST_DOCUMENT // size, self.random.choice((2, 10, 300, 10_000)))
            owner[key : key + 1] = [owner[key]] * max(most, 1)

    def _nest(self, owner, key):
        depth = self.random.choice(DEPTHS)
        owner[key] = f"@raw:{'[' * depth}1{']' * depth}"


# --- texts ------------------------------------------------------------------------------------------------------------


def _bytes(data, random, words):
    found = bytearray(data or b"0")
    for _ in range(random.choice((1, 1, 3, 10))):
        place = random.randrange(len(found) or 1)
        match random.randrange(3):
            case 0:
                found[place : place + 1] = bytes([random.randrange(256)])
            case 1:
                del found[place : place + random.choice((1, 4, 50))]
            case _:
                found[place:place] = random.choice((b"\xff", b"\x00", b"\n", b'"', b"{", b"}", b"[", b",", b":", b"\\"))
    return bytes(found)


def _word(data, random, words):
    parts = _WORD.findall(data)
    if not parts:
        return b"0"
    place = random.randrange(len(parts))
    kind = random.randrange(6)
    if kind == 0:
        new = str(random.choice(NUMBERS))
    elif kind == 1:
        new = random.choice((*RAW, "9" * 400, "9" * 50_000, "0" * 5000))
    elif kind == 2 and words:
        new = random.choice(words)
    elif kind == 3:
        new = random.choice(TEXTS)
    elif kind == 4:
        new = "x" * random.choice(LENGTHS)
    else:
        new = ""
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    if kind < 2 and numbers:
        place = random.choice(numbers)
    parts[place] = new.encode("utf-8", "surrogatepass")
    return b"".join(parts)


def _line(data, random, words):
    lines = data.split(b"\n")
    place = random.randrange(len(lines))
    match random.randrange(5):
        case 0:
            del lines[place]
        case 1:
            lines[place:place] = [random.choice(lines)]
        case 2:
            other = random.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case 3:
            most = LARGEST_DOCUMENT // (len(lines[place]) + 1)
            lines[place : place + 1] = [lines[place]] * min(most, random.choice((3, 200, 20_000)))
        case _:
            lines[place] = b""
    return b"\n".join(lines)


def _cut(data, random, words):
    return data[: random.randrange(len(data) + 1)]


def _duplicated_key(data, random, words):
    keys = list(re.finditer(rb'"[^"\\]{1,40}" ?:', data))
    if not keys:
        return _bytes(data, random, words)
    found = random.choice(keys)
    return data[: found.start()] + found[0] + b" 0, " + data[found.start() :]


def _nested(data, random, words):
    parts = list(re.finditer(rb"[0-9]+|null|true|\"[a-z]*\"", data))
    opened, closed = random.choice(((b"[", b"]"), (b'{"x":', b"}")))
    depth = random.choice(DEPTHS) // len(opened)
    new = opened * depth + b"1" + closed * depth
    if not parts:
        return new
    found = random.choice(parts)
    return data[: found.start()] + new + data[found.end() :]


_TEXT_MUTATIONS = (_bytes, _word, _word, _word, _line, _line, _cut, _duplicated_key, _nested)
