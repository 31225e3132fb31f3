"""The smallest arena of buffers with known lifetimes, by exhaustive search."""


def smallest_arena(start, end, size, alignment=1):
    """Return the least arena over all layouts.

    Any layout can be pushed down until each buffer starts at 0 or at the rounded-up end of another one. The search
    tries all lists of buffers by ascending offset.
    """
    count = len(size)
    best = sum(-(-one // alignment) * alignment for one in size)

    def meets(one, other):
        return start[one] < end[other] and start[other] < end[one]

    def extend(placed, lowest, top):
        nonlocal best
        if len(placed) == count:
            best = min(best, top)
            return
        for buffer in range(count):
            if buffer in placed:
                continue
            below = [placed[other] + size[other] for other in placed if meets(buffer, other)]
            for offset in {0, *(-(-edge // alignment) * alignment for edge in below)}:
                high = offset + size[buffer]
                free = all(
                    placed[other] >= high or placed[other] + size[other] <= offset
                    for other in placed
                    if meets(buffer, other)
                )
                if free and offset >= lowest and max(top, high) < best:
                    extend({**placed, buffer: offset}, offset, max(top, high))

    extend({}, 0, 0)
    return best


def problems(start, end, size, offset, alignment=1, capacity=None):
    """Return what is wrong with a layout: pairs that overlap, offsets that are not allowed."""
    found = [
        (one, other)
        for one in range(len(size))
        for other in range(one)
        if start[one] < end[other]
        and start[other] < end[one]
        and offset[one] < offset[other] + size[other]
        and offset[other] < offset[one] + size[one]
    ]
    found += [one for one in range(len(size)) if offset[one] < 0 or offset[one] % alignment]
    if capacity is not None:
        found += [one for one in range(len(size)) if offset[one] + size[one] > capacity]
    return found


def smallest_constrained_arena(start, end, size, alignment, fixed, reserved, most):
    """Return the least arena with fixed offsets (-1: any) and reserved ranges, or None; tries all offsets to `most`."""
    ranges = [(low // alignment * alignment, -(-high // alignment) * alignment) for low, high in reserved]
    order = sorted(range(len(size)), key=lambda buffer: (fixed[buffer] < 0, -size[buffer]))
    offset, best = {}, [None]

    def is_free(buffer, low):
        high = low + size[buffer]
        if low % alignment or any(low < stop and begin < high for begin, stop in ranges):
            return False
        return not any(
            start[other] < end[buffer]
            and start[buffer] < end[other]
            and low < offset[other] + size[other]
            and offset[other] < high
            for other in offset
        )

    def extend(place, top):
        if best[0] is not None and top >= best[0]:
            return
        if place == len(order):
            best[0] = top
            return
        buffer = order[place]
        for low in range(most + 1) if fixed[buffer] < 0 else [fixed[buffer]]:
            if is_free(buffer, low):
                offset[buffer] = low
                extend(place + 1, max(top, low + size[buffer]))
                del offset[buffer]

    extend(0, 0)
    return best[0]
