"""Worker of the reproducibility check: solve lists of cases from standard input and print the answers.

Run as ``python -m remat.testing.reproducibility_worker``, once for many suites; they compare the output with their own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from remat.errors import OptionError
from remat.solving.entry import solve
from remat.testing.checks import document_of


def answer(case: dict[str, Any]) -> str:
    """Solve one case; return its schedule document as text, or the refusal."""
    try:
        result = solve(
            case["document"],
            algorithm=case["algorithm"],
            budget=case["budget"],
            options=case["options"],
            seed=case["seed"],
            time_limit=case["time_limit"],
        )
    except OptionError as error:
        return f"refused: {error}"
    return document_of(result)


def main() -> None:
    """Read a JSON list of cases from each line, write a JSON list of their answers to a line."""
    for line in sys.stdin:
        print(json.dumps([answer(case) for case in json.loads(line)]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
