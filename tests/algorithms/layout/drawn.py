"""Buffers that tests draw."""

import random

import numpy as np

from remat.plugin import Buffers


def random_buffers(seed, *, most=7, times=6, alignments=(1, 1, 2, 4)):
    """Return a few buffers with small sizes."""
    draw = random.Random(seed)
    count, last = draw.randint(1, most), draw.randint(2, times)
    start = [draw.randrange(last) for _ in range(count)]
    end = [draw.randint(first + 1, last) for first in start]
    largest = draw.choice((2, 3, 7, 12))
    size = [draw.randint(1, largest) for _ in range(count)]
    return Buffers.of(start, end, size, alignment=draw.choice(alignments))


def planted(seed, count=150, height=1 << 20, unit=1024, times=200, share=1.0):
    """Return buffers that a rectangle of `height` was cut into, each with this chance; a layout is known to exist."""
    draw = random.Random(seed)
    pieces = [(0, times, height // unit)]
    while len(pieces) < count:
        place = max(range(len(pieces)), key=lambda k: (pieces[k][1] - pieces[k][0]) * pieces[k][2] * draw.random())
        begin, end, size = pieces.pop(place)
        across = draw.random() < 0.5
        if end - begin > 1 and (across or size == 1):
            middle = draw.randint(begin + 1, end - 1)
            pieces += [(begin, middle, size), (middle, end, size)]
        elif size > 1:
            part = draw.randint(1, size - 1)
            pieces += [(begin, end, part), (begin, end, size - part)]
        else:
            pieces.append((begin, end, size))
    kept = [piece for piece in pieces if draw.random() < share] or pieces
    draw.shuffle(kept)
    columns = np.array(kept, dtype=np.int64).T
    return Buffers.of(columns[0], columns[1], columns[2] * unit, capacity=height)
