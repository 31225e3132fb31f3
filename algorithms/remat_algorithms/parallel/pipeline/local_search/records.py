"""Records of the local search over pipeline orders.

Arrays are indexed by *class*, stage, device, micro-batch or option. Class ``phase * stages + stage`` has one operation
per micro-batch, or none; phases are F, B, W, and the returns from the host. An *option* determines how a stage treats a
micro-batch. Its *level* selects the layers that are recomputed for the backward. Its *part* selects the other values
that wait at the host. Option ``level * width + part`` selects a column of the tables. A plain pipeline has one option.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from numpy.typing import NDArray

from remat.plugin import IntArray
from remat_algorithms.kit.compile.records import cells

Array = Any
FloatArray = NDArray[Any]


class Facts(NamedTuple):
    """The pipeline, and the shares of the kinds of moves. Truth values are constants of the compiled kernel.

    Attributes
    ----------
    chooses : bool
        Whether stages have options, so that `State.option` counts. Otherwise, all take the first option.
    offloads : bool
        Whether values may wait at a host. Then allocations wait until enough bytes are free (`transfers`), and there is
        one chain. Otherwise, forwards leave enough memory for all micro-batches to finish (`device_memory`).
    spans : bool
        Whether the objective is the largest span of a device instead of the makespan.
    duration, device, runs : (classes,)
        Time of an operation without recomputation (of the longest return), its device, and the number of operations.
    delay : (stages,)
        Hop into each stage from the previous one.
    head, tail : (stages,) int
        Whether a stage is the first or the last one of its chain, 0 or 1. There are at most two chains.
    levels : (stages,) int
        Number of levels of a stage.
    parts : (stages, levels) int
        Number of parts of a level; 1 without a host.
    recompute_time : (stages, options)
    held_bytes, forward_bytes, backward_bytes, early_bytes : (stages, options) int
        Bytes held from the end of F to the start of B, and bytes that F allocates at its start. The other two are the
        bytes that B allocates in addition to the held ones: if it recomputes each segment just before its use, and if
        it recomputes all segments first.
    offloaded_bytes : (stages, options) int
        Those of the held bytes that wait at the host.
    offload_time, return_time : (stages, options)
    kept : (stages,) int
        Bytes from the end of B to the end of W.
    free_bytes : (devices,) int
        Bytes of each device for micro-batches.
    first_own, own : (devices + 1,), (stages,)
        Stages of device d, ascending: ``own[first_own[d]:first_own[d + 1]]``.
    stages, devices, batches, width : int
    second : int
        First stage of the second chain; `stages` if there is one chain.
    step, load : float
        Mean time of an operation; maximum work of a device per micro-batch.
    recompute_weight : float
        Weight of a second of recomputation on every device, relative to one of the makespan.
    strict : float
        Share of the moves of `walk` that follow their keys strictly.
    one, some, onwards, so_far : float
        Cumulative shares of the changes of `walk` that move keys (see `priority_keys.ONE`); the others change a level.
    several, gaps : float
        Share of the changes of a regular schedule that move consecutive gaps, and of those that do not change a level.
    stretch : float
        Maximum period of a regular schedule beyond the load, relative to it.
    """

    chooses: bool
    offloads: bool
    spans: bool
    duration: Array
    device: IntArray
    runs: IntArray
    delay: Array
    head: IntArray
    tail: IntArray
    levels: IntArray
    parts: IntArray
    recompute_time: Array
    held_bytes: IntArray
    forward_bytes: IntArray
    backward_bytes: IntArray
    early_bytes: IntArray
    offloaded_bytes: IntArray
    offload_time: Array
    return_time: Array
    kept: IntArray
    free_bytes: IntArray
    first_own: IntArray
    own: IntArray
    stages: int
    devices: int
    batches: int
    width: int
    second: int
    step: float
    load: float
    recompute_weight: float
    strict: float
    one: float
    some: float
    onwards: float
    so_far: float
    several: float
    gaps: float
    stretch: float


@cells
class Progress(ctypes.Structure):
    """Random state, values of the current and the best schedule, period of a regular one, and number of moves.

    `length` and `best_length` are the numbers of operations in `State.order` and `State.best_order`.
    """

    random: int
    current: float
    best: float
    period: float
    moves: int
    length: int
    best_length: int


class State(NamedTuple):
    """Mutable state of the local search.

    Attributes
    ----------
    key : (classes, batches) float64
    start, end : (classes, batches)
        Times of the last schedule built.
    current, best : (classes, batches) float64
        Keys of the current and of the best schedule: their start times.
    option, current_option, best_option : (stages, batches) int
        Option of each micro-batch.
    early, best_early : (stages, batches) int
        Whether recomputation began before the gradient arrived; not recorded with a host.
    done : (classes,)
        Number of operations scheduled: the next micro-batch.
    ready : (classes,)
        Time at which the data of the next operation are available; negative while unknown. With a host, its earliest
        start.
    clock, held : (devices,)
        When each device is free, and the bytes held.
    reserved, spare : (devices,) int
        Bytes that forwards leave free for the allocations of backwards, and bytes not needed by the micro-batches that
        have not finished.
    order, best_order : (operations, 2) int
        Classes and micro-batches in the order in which they were scheduled.
    finish, needs : (classes,)
        With a host: earliest end of the next operation, and the bytes that it allocates at its start.
    sending, coming, taking : (devices,)
        With a host: times at which the channels become free, and of the last allocation.
    gone : (stages, batches)
        Time at which a micro-batch has been offloaded.
    freed_at, freed : (devices, operations)
        Times and sizes of future releases, in the order of time, from `first_freed` to `last_freed`.
    first_freed, last_freed : (devices,) int
    gap, late, share : (2, 2 * stages), (2, stages), (2, stages) float64
        Regular schedules: the candidate and the current one. `gap` is the wait of each stage beyond the necessary, for
        forwards and backwards; `late` is the delay of each W; `share` is the mean level of each stage.
    offset : (classes,) float64
        Start times of micro-batch 0 in a regular schedule.
    reach, path : (devices, devices) float64, (devices + 1, devices) float64
        Longest paths from the first start of a device to the last end of another, and longest chains of that many
        paths.
    progress : Progress
    """

    key: FloatArray
    start: Array
    end: Array
    current: FloatArray
    best: FloatArray
    option: IntArray
    current_option: IntArray
    best_option: IntArray
    early: IntArray
    best_early: IntArray
    done: IntArray
    ready: Array
    clock: Array
    held: IntArray
    reserved: IntArray
    spare: IntArray
    order: IntArray
    best_order: IntArray
    finish: Array
    needs: IntArray
    sending: Array
    coming: Array
    taking: Array
    gone: Array
    freed_at: Array
    freed: IntArray
    first_freed: IntArray
    last_freed: IntArray
    gap: FloatArray
    late: FloatArray
    share: FloatArray
    offset: FloatArray
    reach: FloatArray
    path: FloatArray
    progress: Progress
