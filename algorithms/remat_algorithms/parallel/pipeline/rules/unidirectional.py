"""One stage per device, all micro-batches in one direction: gpipe, 1f1b, eager-1f1b, zb-h1, zb-h2.

p devices, m micro-batches; stage s is on device s.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat_algorithms.parallel.pipeline.rules.operation_lists import (
    Lists,
    Pass,
    Phase,
    check,
    in_turns,
    straight,
    whole,
)


def gpipe(devices: int, batches: int, *, split: bool = False) -> Lists:
    """All forwards, then all backwards (Huang et al. 2019).

    Equal stages without hops: the makespan is (m + p - 1)(F + B), and every device keeps m activations.
    """
    return _warmed(devices, batches, [batches] * devices, split)


def one_forward_one_backward(devices: int, batches: int, *, split: bool = False) -> Lists:
    """The fewest initial forwards, then alternation (1F1B: Narayanan et al. 2019, Fan et al. 2021).

    Stage s runs min(p - s - 1, m) forwards first, the minimum that keeps the last stage busy. Equal stages without
    hops: the makespan is that of `gpipe`, and stage s keeps min(p - s, m) activations.
    """
    return _warmed(devices, batches, [devices - stage - 1 for stage in range(devices)], split)


def eager_one_forward_one_backward(devices: int, batches: int, *, split: bool = False) -> Lists:
    """1F1B with twice as many initial forwards, which hides hops between devices.

    Stage s runs min(2(p - s) - 2, m) forwards first, and keeps min(2(p - s) - 1, m) activations.
    """
    return _warmed(devices, batches, [2 * (devices - stage) - 2 for stage in range(devices)], split)


def zb_h1(devices: int, batches: int) -> Lists:
    """Zero bubble in the memory of 1F1B: weight gradients fill idle times (Qi et al. 2024, handcrafted H1).

    Stage s runs min(p - s, m) forwards first. Then it repeats one B, W's while more than s B's lack theirs, and one F.
    At the end it runs all remaining W's. Equal stages without hops: the makespan is m(F + B + W) + (p - 1)F if B = W
    and m >= p. If half an activation is kept for W, stage s keeps at most p - s/2 activations.
    """
    check(devices, batches)
    return straight(devices, (_late_weights(s, batches, devices - s, s) for s in range(devices)))


def zb_h2(devices: int, batches: int) -> Lists:
    """No idle time on a device from its first to its last operation, for up to twice the memory (Qi et al. 2024, H2).

    As `zb_h1`, with min(2(p - s) - 1, m) initial forwards, and at most 2s + 1 B's without their W (none on stage 0). If
    F = B = W and m >= 2p, the span of each device is its work. The makespan is that of `zb_h1`.
    """
    check(devices, batches)
    return straight(
        devices,
        (_late_weights(s, batches, 2 * (devices - s) - 1, 2 * s + 1 if s else 0) for s in range(devices)),
    )


def _warmed(devices: int, batches: int, warm_up: list[int], split: bool) -> Lists:
    check(devices, batches)
    return straight(
        devices,
        (
            in_turns(
                [Pass(Phase.F, stage, batch) for batch in range(batches)],
                [Pass(whole(split), stage, batch) for batch in range(batches)],
                warm_up[stage],
            )
            for stage in range(devices)
        ),
    )


def _late_weights(stage: int, batches: int, warm_up: int, late: int) -> Iterator[Pass]:
    """Yield the operations of a stage that leaves at most `late` B's without their W while it has forwards."""
    forwards = weights = 0
    for forwards in range(min(warm_up, batches)):
        yield Pass(Phase.F, stage, forwards)
    forwards = min(warm_up, batches)
    for backward in range(batches):
        yield Pass(Phase.B, stage, backward)
        while backward + 1 - weights > late:
            yield Pass(Phase.W, stage, weights)
            weights += 1
        if forwards < batches:
            yield Pass(Phase.F, stage, forwards)
            forwards += 1
    for weight in range(weights, batches):
        yield Pass(Phase.W, stage, weight)
