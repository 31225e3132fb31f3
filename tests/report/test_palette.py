"""Colours that stand side by side can be told apart, by people who see fewer of them, too."""

import itertools

import numpy as np
import pytest

from remat.report.palette import DARK, LIGHT, OF_FATE, OF_KIND, OF_PHASE, OF_STAY, Role
from remat.report.views.composition import Kind
from remat.report.views.phases import Phase

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


# Two kinds that never stand beside each other: graphs of values have no states.
TOGETHER = {
    "kinds": [OF_KIND[kind] for kind in Kind if kind is not Kind.VALUES],
    "phases": [OF_PHASE[phase] for phase in OF_PHASE if phase is not Phase.TASK],
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


def test_every_role_has_its_colours():
    assert set(LIGHT) == set(DARK) == set(Role)
    assert set(OF_STAY.values()) <= set(Role)
