"""Answers on drawn instances of all kinds: reasons add up, suggestions work when pasted, decisions match the steps."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.cli.common import split_budgets
from remat.report.text.summary import summary
from remat.solving.result import Result
from remat.solving.verifying import verify
from remat.testing import strategies
from tests.seeds import few
from tests.solving.test_decisions import check
from tests.solving.test_shortfall import check_need

KINDS = ("chain", "adjoint", "dag", "tree", "join")
WITHIN = st.sampled_from([10, 40, 70, 95])
DRAWN = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
seen = Counter[str]()


def check_reason(document: dict[str, Any], result: Result) -> None:
    """Compare why there is no schedule with the schedule of the suggested budget."""
    found = result.shortfall
    if found is None or not found.budget:
        # Nothing is known to be too small, or no sufficient budget was found.
        assert found is not None or result.status == "unknown" or not result.least_budget
        return
    assert sum(part.size for part in found.parts) == found.need > found.capacity
    assert found.cause.size == max(part.size for part in found.parts)
    lines = summary(result, option="--budget ").splitlines()
    words = shlex.split(next(line for line in lines if line.startswith("try ")).removeprefix("try "))
    assert words[::2] == ["--budget"] * len(found.budget)
    again = remat.solve(document, budget=split_budgets(tuple(words[1::2])), gap="100%")
    assert again.report is not None
    check_need(found, verify(document, again.to_dict()))
    check_text(again.summary())
    check(again)
    seen["suggestions"] += 1


def check_text(text: str) -> None:
    for wrong in ("-0.0 %", "-0 %", " 1 values", " 1 micro-batches", " 1 states", "1 steps,", "nan", "None", "inf "):
        assert wrong not in text, text


@pytest.mark.parametrize("count", few(6, 12))
@pytest.mark.parametrize("kind", [*KINDS, pytest.param("pipeline", marks=pytest.mark.slow)])
def test_answers_explain_themselves(kind: str, count: int) -> None:
    seen.clear()

    @settings(DRAWN, max_examples=count)
    @given(strategies.documents(kind), WITHIN)
    def ask(document: dict[str, Any], share: int) -> None:
        try:
            result = remat.solve(document, budget=f"{share}%", gap="100%")
        except remat.OptionError:  # a share of nothing
            return
        check_text(result.summary())
        if result.report is None:
            check_reason(json.loads(json.dumps(document)), result)
        else:
            check(result)

    ask()
    assert seen["suggestions"] >= count // 6
