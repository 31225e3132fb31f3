"""A profile of the repository piper as rows of layers, by its own figures, as the paper's costs have them."""

import heapq

import numpy as np

from remat_algorithms.joint.piper.table import Rows, Way

WAYS = ("vanilla", "activation recomp")


def rows_of(document, *, devices, room, bandwidth, batches):
    """Return the rows: every edge that is cut costs both of its stages twice its bytes, and what is synchronised."""
    nodes = {node["id"]: node for node in document["nodes"]}
    edges = [(edge["sourceId"], edge["destId"], edge["communicationCost"]) for edge in document["edges"]]
    order = _order(nodes, edges)
    place = {node: index for index, node in enumerate(order)}
    count = len(order)
    copies = [d for d in range(1, devices + 1) if batches % d == 0]
    degrees = [int(degree) for degree in nodes[order[0]]["TMPCs"] if int(degree) <= devices]
    ways, crossing, exchange = {}, {}, {}
    for degree in degrees:
        given = [{way["id"]: way for way in nodes[node]["TMPCs"][str(degree)]} for node in order]
        ways[degree] = [
            [Way(one[way]["timePerSample"], one[way]["memoryUsageA"], one[way]["memoryUsageB"]) for way in WAYS]
            for one in given
        ]
        sent = np.zeros((count + 1, count + 1))
        for source, target, size in edges:
            own, other = place[source], place[target]
            fore = 2 * size + given[other]["vanilla"]["syncTimeFw"].get(str(source), 0)
            back = 2 * size + given[own]["vanilla"]["syncTimeBw"].get(str(target), 0)
            for first in range(count):
                for end in range(first + 1, count + 1):
                    inside = first <= own < end, first <= other < end
                    if inside == (False, True):
                        sent[first, end] += fore
                    elif inside == (True, False):
                        sent[first, end] += back
        crossing[degree] = sent / bandwidth
        weights = np.cumsum([0, *(one["vanilla"]["parameterSize"] for one in given)])
        for d in copies:
            exchange[degree, d] = 4 * (d - 1) * weights / (d * batches * bandwidth)
    return Rows(ways, crossing, exchange, devices, room, copies)


def _order(nodes, edges):
    """Return the nodes in topological order."""
    missing = dict.fromkeys(nodes, 0)
    for _, target, _ in edges:
        missing[target] += 1
    ready, found = sorted(node for node, left in missing.items() if not left), []
    while ready:
        found.append(heapq.heappop(ready))
        for source, target, _ in edges:
            if source == found[-1]:
                missing[target] -= 1
                if not missing[target]:
                    heapq.heappush(ready, target)
    return found
