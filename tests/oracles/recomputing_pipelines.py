"""Exhaustive search for tiny pipelines: cuts, orders, and recomputation per micro-batch.

Written from the rules alone, for layers without outputs on devices in a row, one stage each. A forward takes the bytes
that it saves, and frees them at once if it is recomputed later; a backward frees them. A device runs its list in order.
"""

import itertools


def best_makespan(layers, devices, batches, capacity, parameters):
    """Return the minimum makespan, or None if no schedule fits.

    Parameters
    ----------
    layers : sequence of (forward, backward, saved)
        Times and bytes of a micro-batch.
    devices, batches, capacity, parameters : int
        Bytes of a device; those of each layer that always lie there.
    """
    best = None
    for ends in itertools.combinations(range(1, len(layers)), devices - 1):
        cuts = (0, *ends, len(layers))
        stages = [layers[a:b] for a, b in itertools.pairwise(cuts)]
        choices = [list(_lists(own, batches, capacity - parameters * len(own))) for own in stages]
        for chosen in itertools.product(*choices):
            found = _run(stages, chosen)
            if found is not None and (best is None or found < best):
                best = found
    return best


def _lists(own, batches, room):
    """Yield the recomputed layers of a stage for each micro-batch, and an order that fits."""
    subsets = [
        frozenset(some) for count in range(len(own) + 1) for some in itertools.combinations(range(len(own)), count)
    ]
    for again in itertools.product(subsets, repeat=batches):
        for ahead in itertools.product((False, True), repeat=batches):
            if any(early and not again[batch] for batch, early in enumerate(ahead)):
                continue
            for listed in _words(batches, ahead):
                if _fits(own, listed, again, ahead, room):
                    yield listed, again, ahead


def _words(batches, ahead):
    """Yield orders: F, perhaps R, B of each micro-batch, forwards ascending, backwards, too."""
    chains = [[("F", b), *([("R", b)] if ahead[b] else []), ("B", b)] for b in range(batches)]

    def go(done, listed):
        if all(done[b] == len(chains[b]) for b in range(batches)):
            yield tuple(listed)
            return
        for b in range(batches):
            if done[b] < len(chains[b]):
                op = chains[b][done[b]]
                earlier = b > 0 and op[0] != "R" and (op[0], b - 1) not in listed
                if not earlier:
                    yield from go([*done[:b], done[b] + 1, *done[b + 1 :]], [*listed, op])

    yield from go([0] * batches, [])


def _fits(own, listed, again, ahead, room):
    held = 0
    for phase, batch in listed:
        some = again[batch]
        if phase == "F":
            for number, (_, _, saved) in enumerate(own):
                if held + saved > room:
                    return False
                held += 0 if number in some else saved
        elif phase == "R":
            held += sum(own[number][2] for number in some)
        else:
            for number in reversed(range(len(own))):
                held += own[number][2] if number in some and not ahead[batch] else 0
                if held > room:
                    return False
                held -= own[number][2]
        if held > room:
            return False
    return True


def _run(stages, chosen):
    """Return the makespan of lists; None for a deadlock."""
    ends, clocks, places = {}, [0] * len(stages), [0] * len(stages)
    going = True
    while going:
        going = False
        for stage, (listed, again, ahead) in enumerate(chosen):
            while places[stage] < len(listed):
                phase, batch = listed[places[stage]]
                wanted = []
                if phase == "F" and stage:
                    wanted = [("F", stage - 1, batch)]
                elif phase == "B":
                    wanted = [("F", stage, batch) if stage == len(stages) - 1 else ("B", stage + 1, batch)]
                if any(one not in ends for one in wanted):
                    break
                own = stages[stage]
                more = sum(own[number][0] for number in again[batch])
                time = {
                    "F": sum(layer[0] for layer in own),
                    "R": more,
                    "B": sum(layer[1] for layer in own) + (0 if ahead[batch] else more),
                }[phase]
                clocks[stage] = max([clocks[stage], *(ends[one] for one in wanted)]) + time
                ends[phase, stage, batch] = clocks[stage]
                places[stage] += 1
                going = True
    done = all(place == len(listed) for place, (listed, _, _) in zip(places, chosen, strict=True))
    return max(clocks) if done else None
