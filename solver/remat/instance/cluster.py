"""The cluster of a pipeline: devices of one or more types, and the levels of their topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from remat.graph.machine import Link, Machine, Memory, Processor
from remat.instance.fields import Bandwidth, Count, Model, Name, Ratio, Size, Time, fail
from remat.instance.machine import packed_of

MOST_DEVICES = 256


class DeviceModel(Model):
    """A device with one memory, or `count` equal ones called name0, name1, ..."""

    name: Name = Field(description="Name of the device and of its memory, unique among the devices.")
    type: Name | None = Field(default=None, description="Type that times by type refer to; null: the name.")
    count: Count = Field(default=1, description="Number of equal ones.")
    memory: Size | None = Field(default=None, description="Capacity in bytes; null: unbounded.")

    @property
    def names(self) -> list[str]:
        """Names of the devices, one by one."""
        return [self.name] if self.count == 1 else [f"{self.name}{index}" for index in range(self.count)]

    @property
    def type_name(self) -> str:
        """The device type in times by type."""
        return self.type or self.name


class ConnectionModel(Model):
    """Speed of the links of one kind, in each direction."""

    bandwidth: Bandwidth = Field(default=None, description="Bytes per time in each direction; null: unlimited.")
    latency: Time = Field(
        default=0, description="Time for which each transfer occupies its link, in addition to size/bandwidth."
    )
    delay: Time = Field(
        default=0,
        description="Time from the release of the link to the arrival of the data.",
    )
    ratio: Ratio = Field(default=1, description="Sent bytes per byte of a value, if the links compress.")
    codec: Bandwidth = Field(
        default=None,
        description="Bytes per time that a link compresses and decompresses while it is occupied; null: no time.",
    )

    def link(self, source: int, target: int, channel: str, also: tuple[str, ...] = ()) -> Link:
        """Return a link between two memories."""
        packed = packed_of(self.bandwidth, self.ratio, self.codec)
        return Link(
            source=source,
            target=target,
            bandwidth=self.bandwidth if packed is None else packed.through,
            latency=self.latency,
            delay=self.delay,
            channel=channel,
            also=also,
            packed=packed,
        )


class LevelModel(ConnectionModel):
    """Link speed between devices whose smallest common group has this level."""

    devices: Count | None = Field(
        default=None, description="Number of devices of a group, in listed order; null (last level): all."
    )


HOST = "host"
"""Name of the host memory."""


class HostModel(ConnectionModel):
    """A memory with a link to and from each device, in which nothing runs."""

    memory: Size | None = Field(default=None, description="Capacity in bytes; null: unbounded.")


class ClusterModel(Model):
    """Devices, with a link from each device to each other device."""

    devices: Annotated[tuple[DeviceModel, ...], Field(min_length=1, max_length=MOST_DEVICES)] = Field(
        description="Devices, at least one entry."
    )
    levels: Annotated[tuple[LevelModel, ...], Field(max_length=16)] = Field(
        default=(), description="Link speeds, from the smallest group of devices to all; empty: transfers take no time."
    )
    transfers: Literal["overlap", "blocking", "rendezvous", "grouped"] = Field(
        default="overlap",
        description="Devices that a transfer blocks: none (overlap), the sender (blocking), both, one by one "
        "(rendezvous), or both, with all transfers between two operations posted at once (grouped).",
    )
    host: HostModel | None = Field(
        default=None, description="Host memory, to which devices may offload values; null: none."
    )

    @property
    def names(self) -> list[str]:
        """Names of all devices, in order."""
        return [name for device in self.devices for name in device.names]

    @property
    def types(self) -> list[str]:
        """The type of each device."""
        return [device.type_name for device in self.devices for _ in range(device.count)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(device.count for device in self.devices) > MOST_DEVICES:
            raise fail(f"more than {MOST_DEVICES} devices", ".devices")
        names = self.names
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise fail(f"two devices are called {name!r}", ".devices")
            seen.add(name)
        if self.host is not None and HOST in seen:
            raise fail(f"a device is called {HOST!r}, as is the memory behind the devices", ".devices")
        sizes = [level.devices for level in self.levels]
        for index, size in enumerate(sizes):
            at = f".levels[{index}].devices"
            if size is None and index < len(sizes) - 1:
                raise fail("only the last level may leave out how many devices its groups have", at)
            before = (sizes[index - 1] if index else None) or 1
            if size is not None and (size % before or (index and size == before)):
                raise fail(f"groups of {size} devices; use a larger multiple of {before}, the level before", at)
        if sizes and sizes[-1] is not None and sizes[-1] < len(names):
            raise fail(
                f"the last level joins {sizes[-1]} of {len(names)} devices; leave its `devices` out to join all",
                f".levels[{len(sizes) - 1}].devices",
            )
        return self

    def listed_as(self, devices: Sequence[tuple[str, str]]) -> Self:
        """Return the cluster with the names and types of a machine's processors, in their order.

        It stays as it is if they are of other types.
        """
        types = [kind for _, kind in devices]
        if len(self.types) != len(types) or self.types == types or not set(types) <= set(self.types):
            return self
        rows = tuple(DeviceModel(name=name, type=kind) for name, kind in devices)
        return self.model_copy(update={"devices": rows})

    def of_groups(self, count: int) -> Self:
        """Return the cluster in which each group of `count` neighbours is one device, represented by its first member.

        Raises
        ------
        ValueError
            If the devices differ within a group or between groups; the message gives the reason.
        """
        every = [(name, device) for device in self.devices for name in device.names]
        if len(every) % count:
            raise ValueError(f"groups of {count} do not divide the {len(every)} devices")
        for first in range(0, len(every), count):
            if len({(device.type_name, device.memory) for _, device in every[first : first + count]}) > 1:
                named = f"{every[first][0]} to {every[first + count - 1][0]}"
                raise ValueError(f"{named} are devices of different kinds")
        levels: list[LevelModel] = []
        for level in self.levels:
            if level.devices is not None and level.devices % count and count % level.devices:
                raise ValueError(f"groups of {count} do not fit into those of {level.devices} devices of a level")
            of = None if level.devices is None else level.devices // count
            if of is None or of > 1:
                levels.append(level.model_copy(update={"devices": of}))
        devices = [
            device.model_copy(update={"name": name, "type": device.type_name, "count": 1})
            for name, device in every[::count]
        ]
        return self.model_copy(update={"devices": tuple(devices), "levels": tuple(levels)})

    def build(self, ranks: int = 1) -> Machine:
        """Build the machine: a memory and a processor per device, and a link in each direction between any two devices.

        With several `ranks`, each group of that many neighbours is one device of the machine, represented by the first.
        It has a link to itself for the ring within the group. This link has the properties of the level that joins the
        group.
        """
        memories: list[Memory] = []
        processors: list[Processor] = []
        every = [(name, device) for device in self.devices for name in device.names]
        for name, device in every[::ranks]:
            processors.append(Processor(name, len(memories), type=device.type_name))
            memories.append(Memory(name, device.memory))
        count = len(memories)
        links = [
            self._link(source, target, memories, ranks)
            for source in range(count)
            for target in range(count)
            if source != target or ranks > 1
        ]
        if self.host is not None:
            memories.append(Memory(HOST, self.host.memory))
            links += [
                self.host.link(*ends, "->".join(memories[end].name for end in ends))
                for k in range(count)
                for ends in ((k, count), (count, k))
            ]
        return Machine(tuple(memories), tuple(processors), tuple(links))

    def _link(self, source: int, target: int, memories: list[Memory], ranks: int) -> Link:
        ends = memories[source].name, memories[target].name
        channel = "->".join(ends)
        # Each processor has the name of its memory.
        also = {"overlap": (), "blocking": ends[:1]}.get(self.transfers, ends)
        first, last = source * ranks, target * ranks
        for level in self.levels:
            if level.devices is None:
                joins = True
            elif source == target:
                joins = level.devices % ranks == 0 or level.devices >= len(self.names)
            else:
                joins = first // level.devices == last // level.devices
            if joins:
                return level.link(source, target, channel, also)
        return Link(source=source, target=target, channel=channel, also=also)
