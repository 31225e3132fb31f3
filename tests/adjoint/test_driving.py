"""`Result.actions`, and a time loop that they drive as docs/adjoint.md shows it."""

import re

import pytest

import remat
from remat.report.text.actions import actions
from remat.testing.cases import moderate
from tests import places

PAGE = (places.DOCS / "adjoint.md").read_text()
DRIVER = re.search(r"```python\n(def driven.*?)\n\n\n?print", PAGE, flags=re.DOTALL).group(1)
RAM, DISK = {"name": "ram", "slots": 4}, {"name": "disk", "write_time": 3, "read_time": 2}
BESIDE = DISK | {"channel": "dma"}


@pytest.mark.parametrize(
    ("algorithm", "levels", "budget"),
    [
        ("h-revolve", [RAM, DISK], None),
        ("h-revolve", [RAM, {**DISK, "name": "ssd", "slots": 2}, DISK], None),
        ("two-level-async", [RAM, BESIDE], None),
        ("two-level-async", [RAM, BESIDE], {"working": 3}),
        ("multistage", [RAM, DISK], None),
        ("revolve", [RAM], None),
        ("revolve", [], 6),
        ("adjoint-dp", [], 6),
    ],
)
@pytest.mark.parametrize("steps", [1, 2, 60])
def test_the_driver_of_the_page_makes_the_adjoint(algorithm, levels, budget, steps):
    document = {"schema": "remat.instance/1", "kind": "adjoint", "steps": steps, "backward_time": 2}
    document |= {"storage": levels, "units": {"time": "unit", "memory": "unit"}}
    if not levels:
        del document["storage"]
    plan = remat.solve(document, algorithm=algorithm, budget=budget)
    names = {}
    exec(DRIVER, names)
    adjoint, left = names["driven"](plan)
    state, factors = 1.0, []
    for _ in range(steps):
        factors.append(1 + 0.002 * state)
        state += 0.001 * state * state
    expected = 1.0
    for factor in reversed(factors):
        expected *= factor
    assert adjoint == expected
    assert left == 0


def test_actions_are_the_lines_of_the_command_line():
    result = remat.solve(moderate("chain"), algorithm="store-all")
    assert result.actions() == list(actions(result))
    assert result.actions()[-1] == "backward 1"
    assert remat.solve(moderate("chain"), budget=1).actions() == []
    with pytest.raises(remat.OptionError, match="chains and adjoints only"):
        remat.solve(moderate("dag")).actions()
