"""Interleaved 1F1B: several chunks of the model on each device, assigned round-robin."""

from __future__ import annotations

from remat.plugin import OptionError
from remat_algorithms.parallel.pipeline.rules.operation_lists import Lists, Pass, Phase, check, frozen, in_turns, whole


def interleaved(devices: int, batches: int, *, chunks: int = 2, split: bool = False) -> Lists:
    """1F1B on v chunks per device (Narayanan et al. 2021): chunk j of device d is stage jp + d.

    Micro-batches run in groups of p, so m is a multiple of p. For the i-th F of a device, let g, r = divmod(i, pv) and
    j, q = divmod(r, p): it is chunk j of micro-batch gp + q. The i-th B is the same with chunk v - 1 - j. Device d
    first runs min(mv, 2(p - d - 1) + (v - 1)p) F's, or all of them if m = p.

    For equal stages with times F and B, without hops, the makespan is (mv + p - 1)(F + B). Device d keeps the
    activations of min(mv, 2(p - d - 1) + (v - 1)p + 1) chunks, or of mv chunks if m = p.
    """
    check(devices, batches)
    if chunks < 1:
        raise OptionError(f"{chunks} chunks; a device holds at least one", argument="chunks")
    if batches % devices:
        below = batches - batches % devices
        would_do = f"{below} or {below + devices}" if below else f"{devices}"
        raise OptionError(
            f"the interleaved schedule takes micro-batches in groups of {devices}, one per device: "
            f"use {would_do} instead of {batches}",
            argument="batches",
        )
    group = devices * chunks

    def passes(phase: Phase, device: int) -> list[Pass]:
        found = []
        for index in range(batches * chunks):
            groups, rest = divmod(index, group)
            chunk, within = divmod(rest, devices)
            if phase is not Phase.F:
                chunk = chunks - 1 - chunk
            found.append(Pass(phase, chunk * devices + device, groups * devices + within))
        return found

    lists = []
    for device in range(devices):
        warm_up = batches * chunks if batches == devices else 2 * (devices - device - 1) + (chunks - 1) * devices
        lists.append(in_turns(passes(Phase.F, device), passes(whole(split), device), warm_up))
    stages = devices * chunks
    return Lists(tuple(stage % devices for stage in range(stages)), tuple(range(stages)), frozen(lists))
