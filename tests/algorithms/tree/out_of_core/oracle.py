"""I/O volumes by exhaustive search, and instances; shares nothing with the algorithms."""

import itertools
from functools import cache

ALGORITHMS = ("postorder-min-io", "min-io-lsnf", "min-io-first-fit", "min-io-best-fit", "min-io-best-k")
HEURISTICS = ALGORITHMS[1:]


def machine(capacity=None, *, disk=None, **link):
    """Return a memory, a disk, and links in both directions."""
    return {
        "memories": [{"name": "memory", "capacity": capacity}, {"name": "disk", "capacity": disk}],
        "processors": [{"name": "cpu", "memory": "memory"}],
        "links": [{"source": "memory", "target": "disk", **link}, {"source": "disk", "target": "memory", **link}],
    }


def tree(parent, f, m=None, **more):
    document = {"schema": "remat.instance/1", "kind": "tree", "parent": list(parent), "output_size": list(f)}
    return (
        document | ({} if m is None else {"workspace": list(m)}) | {"units": {"memory": "unit", "time": "unit"}, **more}
    )


def children_of(parent):
    return [[child for child, above in enumerate(parent) if above == node] for node in range(len(parent))]


def requirement(document):
    """Return the largest number of bytes that a single node needs."""
    parent, f = document["parent"], document["output_size"]
    m = document.get("workspace") or [0] * len(f)
    return max(sum(f[c] for c in below) + m[i] + f[i] for i, below in enumerate(children_of(parent)))


def accesses(document):
    """(reads, writes) of each task, as the format lowers trees."""
    own, below = [[i] for i in range(len(document["parent"]))], children_of(document["parent"])
    return (own, below) if document.get("orientation") == "out" else (below, own)


def least_volume(document, order, memory, *, whole=False):
    """Return the minimum bytes written for an order of the tasks, over all absences at each task.

    A search over how many bytes of each value are away while each task runs. Bytes may move at any time;
    a growing absence is a write. With `whole`, each value is absent entirely or present.
    """
    f = document["output_size"]
    m = document.get("workspace") or [0] * len(f)
    reads, writes = accesses(document)
    inward = document.get("orientation") != "out"
    live = set() if inward else {document["parent"].index(-1)}
    states = {(): 0}  # bytes away, as sorted (value, bytes) pairs; the least volume so far
    for task in order:
        resident = live - set(reads[task])
        needed = sum(f[v] for v in [*resident, *reads[task], *writes[task]]) + m[task]
        values = sorted(resident)
        choices = [(0, f[v]) if whole else range(f[v] + 1) for v in values]
        following = {}
        for away in itertools.product(*choices):
            if needed - sum(away) > memory:
                continue
            after = tuple(pair for pair in zip(values, away, strict=True) if pair[1])
            for before, volume in states.items():
                had = dict(before)
                cost = volume + sum(max(0, out - had.get(v, 0)) for v, out in after)
                if cost < following.get(after, cost + 1):
                    following[after] = cost
        states = following
        live = resident | set(writes[task])
    return min(states.values(), default=None)


def postorders(parent):
    """All post-orders of an in-tree."""
    children = children_of(parent)

    @cache
    def below(node):
        return [
            (*itertools.chain(*parts), node)
            for sequence in itertools.permutations(children[node])
            for parts in itertools.product(*(below(child) for child in sequence))
        ]

    return below(parent.index(-1))


def runs(result):
    return [int(step.task[1:]) for step in result.steps if hasattr(step, "task")]


def volume(result):
    """Bytes written to the disk; as many come back."""
    moved = result.report.transferred
    assert moved["memory->disk"] == moved["disk->memory"]
    return moved["memory->disk"]
