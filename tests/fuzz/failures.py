"""Files of failures: the instance, the request and the observed result."""

import dataclasses
import json
import re

from tests.fuzz.cases import Case, Solve
from tests.fuzz.verdicts import Finding


def failure_document(case, finding):
    """Return the document of a failure: the first solve that shows it, and all of them under `solves`."""
    solves = [dataclasses.asdict(solve) for solve in case.solves]
    first = solves[0] if solves else {"budget": None, "options": {}, "seed": 0, "time_limit": None}
    return {
        "instance": case.document,
        "algorithm": finding.algorithm,
        "budget": next((one["budget"] for one in solves if one["algorithm"] == finding.algorithm), first["budget"]),
        "seen": finding.message,
        "rule": finding.rule,
        "seed": case.seed,
        "form": case.form,
        "solves": solves,
    }


def write_failure(folder, document):
    """Write a failure to a folder, named by rule, algorithm and seed; return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w-]+", "-", f"{document['rule']}-{document['algorithm']}-{document['seed']}")
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def read_failure(text):
    """Return the case of a failure, and its finding; files without `solves` have the one solve of their head."""
    found = json.loads(text)
    head = {"algorithm": found["algorithm"], "budget": found.get("budget"), "time_limit": 10.0}
    solves = tuple(Solve(**solve) for solve in found.get("solves") or [head])
    case = Case(found.get("seed", 0), found["instance"], solves, found.get("form", ""))
    return case, Finding(found.get("rule", ""), found["algorithm"], str(found.get("seen", "")), solves)
