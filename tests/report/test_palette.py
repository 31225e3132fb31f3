"""Neighbouring colours are distinguishable, also with colour blindness."""

import itertools

import numpy as np
import pytest

from remat.report.palette import DARK, GROUPS, GROUPS_DARK, LEVELS, LIGHT, OF_FATE, OF_KIND, OF_PHASE, OF_STAY, Role

# Machado, Oliveira and Fernandes 2009, table for severity 1.
SEEN = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def lab(colour, seen):
    """CIE L*a*b* of a colour, as somebody sees it."""
    rgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(SEEN[seen] @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


TOGETHER = {
    "kinds": list(OF_KIND.values()),
    "phases": list(OF_PHASE.values()),
    "fates": list(OF_FATE.values()),
}


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("where", TOGETHER)
def test_colours_beside_each_other_differ(palette, seen, where):
    differences = {
        (one, other): float(np.linalg.norm(lab(palette[one], seen) - lab(palette[other], seen)))
        for one, other in itertools.combinations(dict.fromkeys(TOGETHER[where]), 2)
    }
    close = {pair: round(difference, 1) for pair, difference in differences.items() if difference < 9}
    assert not close


def difference(one, other, seen="all colours"):
    return float(np.linalg.norm(lab(one, seen) - lab(other, seen)))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_memory_and_time_share_no_colour(palette, seen):
    pairs = itertools.product(set(OF_KIND.values()), set(OF_PHASE.values()))
    assert min(difference(palette[one], palette[other], seen) for one, other in pairs) > 6


@pytest.mark.parametrize(("areas", "palette"), [(GROUPS, LIGHT), (GROUPS_DARK, DARK)], ids=["light", "dark"])
def test_groups_differ_from_each_other_and_from_time(areas, palette):
    # They have names on them: for those who see fewer colours, too.
    assert min(difference(*pair) for pair in itertools.combinations(areas, 2)) > 10
    times = [palette[role] for role in set(OF_PHASE.values())]
    assert min(difference(*pair) for pair in itertools.product(areas, times)) > 10


@pytest.mark.parametrize("seen", SEEN)
def test_levels_differ_from_each_other_and_from_sweeps(seen):
    sweeps = [LIGHT[role] for role in (Role.FORWARD, Role.SAVING, Role.AGAIN, Role.BACKWARD)]
    assert min(difference(*pair, seen) for pair in itertools.combinations(LEVELS[:4], 2)) > 9
    assert min(difference(*pair, seen) for pair in itertools.product(LEVELS, sweeps)) > 9


def test_every_role_has_its_colours():
    assert set(LIGHT) == set(DARK) == set(Role)
    assert set(OF_STAY.values()) <= set(Role)
