"""Choices in which the updating processor also runs forwards and backwards: initial ones, and changes of them.

Parameters next to that processor need not cross the link for its own runs. Good candidates are the first forwards,
while the parameters of later stages come, and stages with many bytes and little work, for example an embedding. Updates
on the device transfer the states there and back, overlapped with the host's updates.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from remat_algorithms.offload.weights.parameters import Choice, Choices, Setting

MOST_PREFIXES = 16
"""Maximum number of lengths of the prefix of stages that are tried."""
MOST_UPDATES = 6
"""Maximum number of updates on the device in the initial choices."""
DELAYS = 3
FAR = 0.3
"""Probability that a delay is drawn at random; otherwise it changes slightly."""


def prefixes(setting: Setting) -> Iterator[list[Choices]]:
    """Yield rows of choices whose first forwards the helper runs, ever more; in row two, the whole first stage."""
    base, count = _streaming(setting), len(setting.stages)
    for first in (1, 2):
        row: list[Choices] = []
        for number in sorted({1 + k * (count - 1) // MOST_PREFIXES for k in range(MOST_PREFIXES)}):
            helped = [first] + [1] * (number - 1)
            row.append([replace(c, helped=helped[k] if k < number else 0) for k, c in enumerate(base)])
        yield row


def with_updates(setting: Setting, choices: Choices) -> Iterator[Choices]:
    """Yield the same choices with some updates on the device: of stages next to the first one, or spread over all."""
    able = [k for k in setting.updated if choices[k].helped != 2][:-1]
    for number in range(1, min(MOST_UPDATES, len(able)) + 1):
        spread = {able[k * len(able) // number] for k in range(number)}
        for some in (set(able[:number]), spread):
            for delay in range(DELAYS):
                yield [replace(c, updater=0, delay=delay) if k in some else c for k, c in enumerate(choices)]


def changed(setting: Setting, choices: Sequence[Choice], chance: random.Random) -> Choices:
    """Change one choice of one to three stages, or exchange some between two."""
    found = list(choices)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        index, dice = chance.randrange(len(found)), chance.random()
        if dice < 0.85:
            found[index] = _checked(setting, index, _one(setting, found[index], dice, chance, len(found)))
            continue
        other = chance.randrange(len(found))
        one, two = found[index], found[other]
        if dice < 0.93:
            one, two = (
                replace(one, updater=two.updater, delay=two.delay),
                replace(two, updater=one.updater, delay=one.delay),
            )
        else:
            one, two = two, one
        found[index], found[other] = _checked(setting, index, one), _checked(setting, other, two)
    return found


def _streaming(setting: Setting) -> Choices:
    """Offload all parameters and recompute all forwards, except those of the last stages."""
    assert setting.helper is not None
    last = max((k for k in setting.updated if setting.stages[k].parameters is not None), default=0)
    return [
        Choice(streams=k < last - 1, updater=setting.helper, again=k < last, yields=True)
        for k in range(len(setting.stages))
    ]


def _one(setting: Setting, choice: Choice, dice: float, chance: random.Random, count: int) -> Choice:
    assert setting.helper is not None
    if dice < 0.25:
        updater = 0 if choice.updater else setting.helper
        return replace(choice, updater=updater, delay=0 if updater else chance.randrange(count))
    if dice < 0.4:
        far = chance.random() < FAR
        delay = chance.randrange(count) if far else max(0, choice.delay + chance.choice((-2, -1, 1, 2)))
        return replace(choice, delay=delay)
    if dice < 0.5:
        return replace(choice, again=not choice.again)
    if dice < 0.6:
        return replace(choice, streams=not choice.streams)
    if dice < 0.8:
        return replace(choice, helped=chance.choice((0, 1, 1, 2)))
    return replace(choice, yields=not choice.yields)


def _checked(setting: Setting, index: int, choice: Choice) -> Choice:
    """Make a choice consistent: the helper also updates the stages that it runs completely."""
    if index not in setting.updated:
        return replace(choice, updater=setting.helper or 0)
    return replace(choice, helped=1) if choice.helped == 2 and choice.updater == 0 else choice
