"""The search of `layout-exact`: each section of time has a floor, and the lowest valleys are filled first.

A *section* is an interval of time in which the same buffers live. Everything below a section's floor is decided. A
*valley* is a run of sections with equal floors whose neighbours are higher. A buffer that starts at that floor lies
within the valley.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from remat.plugin import IntArray
from remat_algorithms.kit.compile.lowering import Kernel
from remat_algorithms.kit.compile.records import cells

WALL = 1 << 60
"""The floor of a section whose buffers are all placed."""

SEARCHING, SOLVED, INFEASIBLE, LIMIT = range(4)

GAP, EXCLUDE, BEGIN = -1, -2, -3
"""Decisions that place no buffer: leave a gap in a section; let no buffer span a valley; the root."""

(
    LOW,
    HIGH,
    PARENT,
    TRAIL,
    CHOICE,
    CHOICES,
    PART,
    PARTS,
    SECTION,
    LEVEL,
    LEFT,
    RIGHT,
    ABOVE,
    PLACED,
    FIRST_CHOICE,
    FIRST_PART,
) = range(16)
"""Columns of a frame: its sections, the frame that opened it, the trail before it, and its choices and parts."""
FIELDS = 16


@cells
class Counts(ctypes.Structure):
    """Counters of the search."""

    trail: int
    queue: int
    frames: int
    choices: int
    parts: int
    nodes: int
    work: int
    limit: int
    full: int
    random: int
    noise: int
    frame: int


class Sections(NamedTuple):
    """The problem: buffers over sections.

    Attributes
    ----------
    first, last : (buffers,) int64
        Sections of each buffer, half-open.
    size, top : (buffers,) int64
        `top` is the largest offset.
    slot : (buffers,) int64
        Begin of a buffer's positions in `position`.
    begin : (sections + 1,) int64
        Begin of each section's buffers in `item`.
    score : (buffers,) int64
        Larger ones are tried first.
    pinned : (sections,) int64
        Nonzero if buffers must not be exchanged here, because of a fixed offset or in general.
    capacity, least : int
        `least` is the smallest height of a gap: the smallest size, or 1 below buffers with fixed offsets.
    """

    first: IntArray
    last: IntArray
    size: IntArray
    top: IntArray
    slot: IntArray
    begin: IntArray
    score: IntArray
    pinned: IntArray
    capacity: int
    least: int


class Search(NamedTuple):
    """Mutable state: floors, bytes and buffers that remain above them, smallest offsets, and the stack of decisions."""

    floor: IntArray
    rest: IntArray
    left: IntArray
    crossing: IntArray
    weight: IntArray
    lowest: IntArray
    offset: IntArray
    item: IntArray
    position: IntArray
    queue: IntArray
    queued: IntArray
    trail: IntArray
    frame: IntArray
    choice: IntArray
    part: IntArray
    at: Counts


def random(search: Search) -> int:
    """Return the next pseudo-random number of 31 bits."""
    search.at.random = (search.at.random * 1103515245 + 12345) & 0x7FFFFFFF
    return search.at.random >> 8


def enqueue(search: Search, section: int) -> None:
    """Queue a section for inference."""
    if search.queued[section] == 0:
        search.queued[section] = 1
        search.queue[search.at.queue] = section
        search.at.queue += 1


def set_floor(search: Search, section: int, level: int) -> None:
    """Change a floor and record the old one."""
    note(search, section, search.floor[section])
    search.floor[section] = level


def note(search: Search, what: int, old: int) -> None:
    """Record on the trail the old value of a floor (by section) or of a smallest offset (by -1 - buffer)."""
    if search.at.trail >= search.trail.shape[0]:
        search.at.full = 1
        return
    search.trail[search.at.trail, 0] = what
    search.trail[search.at.trail, 1] = old
    search.at.trail += 1


def set_lowest(sections: Sections, search: Search, buffer: int, level: int) -> None:
    """Raise a buffer's smallest offset, and queue the sections whose floor depended on it."""
    old = search.lowest[buffer]
    note(search, -1 - buffer, old)
    search.lowest[buffer] = level
    for section in range(sections.first[buffer], sections.last[buffer]):
        if search.floor[section] >= old:
            enqueue(search, section)


def settle(sections: Sections, search: Search) -> bool:
    """Raise smallest offsets to the floors and floors to the smallest offsets; return whether all still fits."""
    fits = True
    while search.at.queue > 0:
        search.at.queue -= 1
        section = int(search.queue[search.at.queue])
        floor = int(search.floor[section])
        if not fits or search.left[section] == 0:
            if fits and floor < WALL:
                set_floor(search, section, WALL)
            search.queued[section] = 0
            continue
        begin = sections.begin[section]
        left = int(search.left[section])
        search.at.work += left
        least = WALL
        for k in range(begin, begin + left):
            buffer = int(search.item[k])
            lowest = int(search.lowest[buffer])
            if lowest < floor:
                lowest = floor
                set_lowest(sections, search, buffer, floor)
                if floor > sections.top[buffer]:
                    fits = False
            least = min(least, lowest)
        search.queued[section] = 0
        if least > floor:
            set_floor(search, section, least)
        if least + search.rest[section] > sections.capacity:
            fits = False
        if not fits:
            search.weight[section] += 1
    return fits


def place(sections: Sections, search: Search, buffer: int, level: int) -> None:
    """Place a buffer whose sections all have this floor."""
    size = sections.size[buffer]
    search.offset[buffer] = level
    first, last = sections.first[buffer], sections.last[buffer]
    for section in range(first, last):
        remove(sections, search, buffer, section)
        search.rest[section] -= size
        if section > first:
            search.crossing[section] -= 1
        set_floor(search, section, level + size)
        enqueue(search, section)


def remove(sections: Sections, search: Search, buffer: int, section: int) -> None:
    """Remove a buffer from the remaining ones of a section by exchanging it with the last."""
    search.left[section] -= 1
    end = sections.begin[section] + search.left[section]
    own = sections.slot[buffer] + section - sections.first[buffer]
    here = search.position[own]
    other = search.item[end]
    search.item[here] = other
    search.item[end] = buffer
    search.position[own] = end
    search.position[sections.slot[other] + section - sections.first[other]] = here


def undo(sections: Sections, search: Search, mark: int) -> None:
    """Undo all changes of floors and smallest offsets since a mark of the trail."""
    while search.at.trail > mark:
        search.at.trail -= 1
        what = search.trail[search.at.trail, 0]
        if what >= 0:
            search.floor[what] = search.trail[search.at.trail, 1]
        else:
            search.lowest[-1 - what] = search.trail[search.at.trail, 1]


def lift(sections: Sections, search: Search, buffer: int) -> None:
    """Remove a placed buffer; later ones are removed already."""
    size = sections.size[buffer]
    first, last = sections.first[buffer], sections.last[buffer]
    search.offset[buffer] = -1
    for section in range(first, last):
        search.left[section] += 1
        search.rest[section] += size
        if section > first:
            search.crossing[section] += 1


def gap_level(sections: Sections, search: Search, section: int, level: int) -> int:
    """Return the smallest level at which the next buffer of a section may start if none starts at its floor."""
    found = WALL
    begin = sections.begin[section]
    for k in range(begin, begin + search.left[section]):
        buffer = int(search.item[k])
        lowest = int(search.lowest[buffer])
        if lowest > level:
            found = min(found, lowest)
            continue
        # It lies on a buffer that does not live in this section.
        search.at.work += search.left[section]
        for other_section in range(sections.first[buffer], sections.last[buffer]):
            start = sections.begin[other_section]
            for j in range(start, start + search.left[other_section]):
                other = int(search.item[j])
                if sections.first[other] <= section and section < sections.last[other]:
                    continue
                below = int(search.lowest[other])
                end = below + sections.size[other]
                if end > level:
                    found = min(found, end)
    return found


def decide(sections: Sections, search: Search, frame: int) -> None:
    """Choose where to branch in a frame's sections, and list its choices."""
    low, high = search.frame[frame, LOW], search.frame[frame, HIGH]
    best, fewest, most = -1, 1 << 40, -1
    left = low
    while left < high:
        level = search.floor[left]
        right = left + 1
        while right < high and search.floor[right] == level:
            right += 1
        wall_left = search.floor[left - 1] if left > low else WALL
        wall_right = search.floor[right] if right < high else WALL
        if level < WALL and wall_left > level and wall_right > level:
            exchanges = True
            for section in range(left, right):
                if sections.pinned[section] > 0:
                    exchanges = False
            for section in range(left, right):
                begin = sections.begin[section]
                search.at.work += search.left[section]
                options = 0
                spans = -1
                for k in range(begin, begin + search.left[section]):
                    buffer = search.item[k]
                    if search.lowest[buffer] == level:
                        options += 1
                        whole = section == left and sections.first[buffer] == left and sections.last[buffer] == right
                        if whole and (spans < 0 or buffer < spans):
                            spans = buffer
                if level + search.rest[section] + sections.least <= sections.capacity:
                    options += 1
                if spans >= 0 and exchanges:
                    above = min(wall_left, wall_right)
                    search.frame[frame, SECTION] = section
                    search.frame[frame, LEVEL] = level
                    search.frame[frame, LEFT] = left
                    search.frame[frame, RIGHT] = right
                    search.frame[frame, ABOVE] = above
                    add_choice(search, frame, spans)
                    if above < WALL and above < sections.top[spans]:
                        add_choice(search, frame, EXCLUDE)
                    return
                weight = search.weight[section]
                if options < fewest or (options == fewest and weight > most):
                    best, fewest, most = section, options, weight
                    search.frame[frame, LEFT] = left
                    search.frame[frame, RIGHT] = right
        left = right
    level = search.floor[best]
    search.frame[frame, SECTION] = best
    search.frame[frame, LEVEL] = level
    list_choices(sections, search, frame, best, level)


def add_choice(search: Search, frame: int, choice: int) -> None:
    """Add a choice to the last frame."""
    if search.at.choices + 1 >= search.choice.shape[0]:
        search.at.full = 1
        return
    search.choice[search.at.choices, 0] = choice
    search.at.choices += 1
    search.frame[frame, CHOICES] = search.at.choices


def list_choices(sections: Sections, search: Search, frame: int, section: int, level: int) -> None:
    """List the buffers that can start at a section's floor by descending score, and a gap if one fits."""
    begin = sections.begin[section]
    for k in range(begin, begin + search.left[section]):
        buffer = search.item[k]
        if search.lowest[buffer] != level:
            continue
        twin = False
        for j in range(begin, begin + search.left[section]):
            other = search.item[j]
            if other < buffer and search.lowest[other] == level and is_twin(sections, other, buffer):
                twin = sections.pinned[section] == 0
                break
        if twin:
            continue
        score = sections.score[buffer] + random(search) % search.at.noise
        place_at = search.at.choices
        add_choice(search, frame, buffer)
        while place_at > search.frame[frame, FIRST_CHOICE] and search.choice[place_at - 1, 1] < score:
            search.choice[place_at, 0] = search.choice[place_at - 1, 0]
            search.choice[place_at, 1] = search.choice[place_at - 1, 1]
            place_at -= 1
        search.choice[place_at, 0] = buffer
        search.choice[place_at, 1] = score
    slack = sections.capacity - level - search.rest[section]
    if slack >= sections.least:
        above = gap_level(sections, search, section, level)
        if above - level <= slack:
            search.frame[frame, ABOVE] = above
            add_choice(search, frame, GAP)


def is_twin(sections: Sections, one: int, other: int) -> bool:
    """Whether two buffers have the same lifetime and size."""
    if sections.first[one] != sections.first[other] or sections.last[one] != sections.last[other]:
        return False
    return bool(sections.size[one] == sections.size[other])


def apply(sections: Sections, search: Search, frame: int, choice: int) -> bool:
    """Apply a choice; return whether all still fits."""
    level = search.frame[frame, LEVEL]
    section = search.frame[frame, SECTION]
    search.frame[frame, PLACED] = -1
    if choice >= 0:
        search.frame[frame, PLACED] = choice
        place(sections, search, choice, level)
    elif choice == GAP:
        set_floor(search, section, search.frame[frame, ABOVE])
        enqueue(search, section)
    elif choice == EXCLUDE:
        above, spans = search.frame[frame, ABOVE], search.choice[search.frame[frame, FIRST_CHOICE], 0]
        begin = sections.begin[section]
        for k in range(begin, begin + search.left[section]):
            buffer = search.item[k]
            if search.lowest[buffer] <= above and is_twin(sections, buffer, spans):
                set_lowest(sections, search, buffer, above + 1)
    return settle(sections, search)


def open_parts(search: Search, frame: int) -> None:
    """Split the remaining sections of a frame at the points that no buffer crosses."""
    search.frame[frame, FIRST_PART] = search.at.parts
    search.frame[frame, PART] = search.at.parts
    low, high = search.frame[frame, LOW], search.frame[frame, HIGH]
    left = low
    for section in range(low, high):
        if search.left[section] == 0:
            left = section + 1
        elif section + 1 == high or search.crossing[section + 1] == 0:
            if search.at.parts + 1 >= search.part.shape[0]:
                search.at.full = 1
                return
            search.part[search.at.parts, 0] = left
            search.part[search.at.parts, 1] = section + 1
            search.at.parts += 1
            left = section + 1
    search.frame[frame, PARTS] = search.at.parts


def open_frame(search: Search, parent: int, low: int, high: int) -> int:
    """Add a frame for some sections."""
    frame = search.at.frames
    search.at.frames += 1
    if search.at.frames >= search.frame.shape[0]:
        search.at.full = 1
    search.frame[frame, LOW] = low
    search.frame[frame, HIGH] = high
    search.frame[frame, PARENT] = parent
    search.frame[frame, TRAIL] = search.at.trail
    search.frame[frame, FIRST_CHOICE] = search.at.choices
    search.frame[frame, CHOICE] = search.at.choices
    search.frame[frame, CHOICES] = search.at.choices
    search.frame[frame, FIRST_PART] = search.at.parts
    search.frame[frame, PLACED] = -1
    return frame


def take_back(sections: Sections, search: Search, frame: int) -> None:
    """Undo the current choice of a frame, and all frames above it."""
    while search.at.frames > frame + 1:
        search.at.frames -= 1
        above = search.frame[search.at.frames, PLACED]
        if above >= 0:
            lift(sections, search, above)
    placed = search.frame[frame, PLACED]
    if placed >= 0:
        lift(sections, search, placed)
        search.frame[frame, PLACED] = -1
    undo(sections, search, search.frame[frame, TRAIL])
    search.at.choices = search.frame[frame, CHOICES]
    search.at.parts = search.frame[frame, FIRST_PART]


def next_part(search: Search, frame: int) -> int:
    """Return the frame of the next part to solve after a frame's choice was applied; -1 if all are solved."""
    while frame >= 0:
        part = search.frame[frame, PART]
        if part < search.frame[frame, PARTS]:
            search.frame[frame, PART] += 1
            return open_frame(search, frame, search.part[part, 0], search.part[part, 1])
        frame = search.frame[frame, PARENT]
    return -1


def run(sections: Sections, search: Search) -> int:
    """Start or continue the search until a layout is found, all are excluded, or the limit of nodes is reached."""
    frame = search.at.frame
    if search.at.frames == 0:
        for section in range(search.floor.shape[0]):
            enqueue(search, section)
        if not settle(sections, search):
            return INFEASIBLE
        open_parts(search, open_frame(search, -1, 0, search.floor.shape[0]))
        frame = next_part(search, 0)
    while frame > 0:
        search.at.frame = frame
        if search.at.nodes >= search.at.limit or search.at.full != 0:
            return LIMIT
        decide(sections, search, frame)
        if search.at.full != 0:
            return LIMIT
        frame = advance(sections, search, frame)
    return SOLVED if frame < 0 else INFEASIBLE


def advance(sections: Sections, search: Search, frame: int) -> int:
    """Try choices of this frame, then of earlier ones, until one fits; return the next frame to decide.

    Returns -1 if everything is placed, 0 if no choice is left.
    """
    while frame > 0:
        choice = search.frame[frame, CHOICE]
        if choice == search.frame[frame, CHOICES]:
            parent = search.frame[frame, PARENT]
            if parent > 0:
                take_back(sections, search, parent)
            frame = parent
            continue
        search.frame[frame, CHOICE] += 1
        search.at.nodes += 1
        if apply(sections, search, frame, search.choice[choice, 0]):
            open_parts(search, frame)
            return next_part(search, frame)
        take_back(sections, search, frame)
    return frame


RUN = Kernel(run)
