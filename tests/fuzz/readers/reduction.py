"""Reduce a document with a finding by removing parts while the finding stays."""

import json
import re

TRIALS = 3000
"""Readings that a reduction takes at most."""

SLOW_TRIALS = 40
"""The same where each of them takes seconds."""


def reduced(data, judge, cause):
    """Return a smaller document for which `judge` reports the same cause."""
    left = SLOW_TRIALS if cause.startswith(("time", "memory")) else TRIALS

    def fails(candidate):
        nonlocal left
        if left <= 0 or candidate == data:
            return False
        left -= 1
        found = judge(candidate)
        return found is not None and found.cause == cause

    before = None
    while data != before and left > 0:
        before = data
        data = _smaller_tree(data, fails)
        data = _shorter(data, fails)
    return data


def _smaller_tree(data, fails):
    """Delete entries of objects and lists, and shorten texts and numbers, keeping the finding."""
    try:
        document = [json.loads(data)]
    except (ValueError, RecursionError):
        return data

    def text():
        return json.dumps(document[0]).encode("utf-8", "surrogatepass")

    if not fails(text()):
        return data
    for owner, key in _places(document):
        if owner is document or (key not in owner if isinstance(owner, dict) else key >= len(owner)):
            continue
        old = owner[key]
        if isinstance(owner, dict):
            del owner[key]
        else:
            owner.pop(key)
        if fails(text()):
            continue
        if isinstance(owner, dict):
            owner[key] = old
        else:
            owner.insert(key, old)
        for simple in (0, "x", [], {}):
            owner[key] = simple
            if old != simple and fails(text()):
                break
        else:
            owner[key] = old
    return text()


def _places(document):
    """Return (owner, key) of each part, the last entries of lists first, outer parts before inner ones."""
    found, level = [], [document]
    while level and len(found) < 2000:
        inner = []
        for node in level:
            for key in list(node) if isinstance(node, dict) else reversed(range(len(node))):
                found.append((node, key))
                if isinstance(node[key], (dict, list)):
                    inner.append(node[key])
        level = inner
    return found


def _shorter(data, fails):
    """Shorten runs of one character, then delete ever smaller pieces."""
    for run in sorted({match[0] for match in re.finditer(rb"(.)\1{20,}", data, re.DOTALL)}, key=len, reverse=True)[:5]:
        for size in (1, 10, 100, 1000, 5000):
            if size < len(run) and fails(candidate := data.replace(run, run[:size])):
                data = candidate
                break
    size = max(len(data) // 2, 1)
    while size:
        place = 0
        while place < len(data):
            candidate = data[:place] + data[place + size :]
            if fails(candidate):
                data = candidate
            else:
                place += size
        size //= 2
    return data
