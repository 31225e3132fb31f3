"""Canonical machines: the order of the parts does not depend on their order in the document."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from remat.graph.canonical import Uses, canonical, natural, unused_memories, without_unused
from remat.graph.machine import Link, Machine, Memory, Processor

CAPACITIES = (None, None, 5, 8)
BANDWIDTHS = (None, 1, 1, 2, 0.5)


@st.composite
def machines(draw):
    """Draw a machine with many parts that are alike."""
    count = draw(st.integers(1, 5))
    memories = tuple(Memory(f"m{index}", draw(st.sampled_from(CAPACITIES))) for index in range(count))
    speeds = draw(st.lists(st.sampled_from([1, 1, 0.5]), min_size=1, max_size=4))
    homes = st.integers(0, count - 1)
    processors = tuple(Processor(f"p{index}", draw(homes), speed) for index, speed in enumerate([1, *speeds]))
    pairs = draw(st.lists(st.tuples(homes, homes), unique=True, max_size=8))
    channels = st.sampled_from(["bus", "p0", "own"])
    links = []
    for source, target in pairs:
        channel = draw(channels)
        own = f"m{source}->m{target}"
        links.append(
            Link(
                source=source,
                target=target,
                bandwidth=draw(st.sampled_from(BANDWIDTHS)),
                latency=draw(st.sampled_from([0, 0, 1])),
                channel=own if channel == "own" else channel,
            )
        )
    return Machine(memories, processors, tuple(links))


def shuffled(machine, rng):
    """List the parts in another order, with the reference processor before the others of speed 1."""
    order = rng.sample(range(len(machine.memories)), len(machine.memories))
    new = {old: index for index, old in enumerate(order)}
    others = list(machine.processors[1:])
    rng.shuffle(others)
    slow = [one for one in others if one.speed != 1]
    fast = [machine.processors[0], *(one for one in others if one.speed == 1)]
    links = [replace(link, source=new[link.source], target=new[link.target]) for link in machine.links]
    rng.shuffle(links)
    return Machine(
        tuple(machine.memories[old] for old in order),
        tuple(replace(one, memory=new[one.memory]) for one in [*slow, *fast]),
        tuple(links),
    )


def renamed(machine):
    """Reverse the alphabetical order of memories and processors."""
    memories = {one.name: f"x{9 - index}" for index, one in enumerate(machine.memories)}
    processors = {one.name: f"y{9 - index}" for index, one in enumerate(machine.processors)}

    def channel(link):
        if link.channel in processors:
            return processors[link.channel]
        ends = [memories[machine.memories[end].name] for end in (link.source, link.target)]
        return "zug" if link.channel == "bus" else "->".join(ends)

    return Machine(
        tuple(replace(one, name=memories[one.name]) for one in machine.memories),
        tuple(replace(one, name=processors[one.name]) for one in machine.processors),
        tuple(replace(link, channel=channel(link)) for link in machine.links),
    )


def figures(machine):
    """Everything but names; channels by their numbers."""
    return (
        [(one.capacity, one.static) for one in machine.memories],
        [(one.memory, one.speed) for one in machine.processors],
        [(link.source, link.target, link.bandwidth, link.latency) for link in machine.links],
        machine.resource_of_link,
    )


@given(machines(), st.randoms(use_true_random=False))
def test_the_listed_order_does_not_matter(machine, rng):
    assert canonical(shuffled(machine, rng)) == canonical(machine)


@given(machines())
def test_names_only_tell_equals_apart(machine):
    before, after = canonical(machine), canonical(renamed(machine))
    # Memories that look alike within `ROUNDS` links may be swapped; their figures are equal.
    for one, other in zip(figures(before)[:2], figures(after)[:2], strict=True):
        assert one == other


@given(machines())
def test_a_canonical_machine_stays_as_it_is(machine):
    once = canonical(machine)
    assert canonical(once) == once
    assert once.processors[0].speed == 1
    assert once.processors[0].memory == 0


@given(machines())
def test_unused_memories_come_last_and_can_be_left_out(machine):
    ordered = canonical(machine)
    unused = unused_memories(ordered)
    assert unused == set(range(len(ordered.memories) - len(unused), len(ordered.memories)))
    smaller = without_unused(ordered)
    assert smaller.memories == ordered.memories[: len(smaller.memories)]
    assert not unused_memories(smaller)
    assert without_unused(smaller) is smaller


def test_memories_are_sorted_by_the_time_there_and_back():
    # The disk is quicker for small values, the host for large ones.
    memories = (Memory("device"), Memory("disk"), Memory("host"))
    links = [
        Link(source=source, target=target, bandwidth=rate, latency=latency, channel=f"{source}{target}")
        for other, rate, latency in ((1, 1, 0), (2, 10, 5))
        for source, target in ((0, other), (other, 0))
    ]
    machine = Machine(memories, (Processor("gpu", 0),), tuple(links))
    for size, first in ((1, "disk"), (100, "host")):
        assert canonical(machine, lambda size=size: Uses(size)).memories[1].name == first


def test_what_an_instance_names_is_used():
    machine = Machine((Memory("device"), Memory("far")), (Processor("gpu", 0),), ())
    assert unused_memories(machine) == {1}
    assert not unused_memories(machine, ["far"])
    full = Machine((Memory("device"), Memory("far", 1, static=2)), (Processor("gpu", 0),), ())
    assert without_unused(full) is full  # no schedule is valid on it, which must not be lost


def test_a_link_to_itself_is_used_by_collectives_alone():
    own = Link(source=0, target=0, bandwidth=1, channel="ring")
    machine = Machine(links=(own,))
    assert without_unused(machine) is machine
    assert without_unused(machine, own_links=False) == Machine()


def test_numbers_in_names_are_sorted_by_value():
    assert sorted(["gpu10", "gpu2", "gpu", "cpu3"], key=natural) == ["cpu3", "gpu", "gpu2", "gpu10"]
