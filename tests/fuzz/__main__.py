"""Fuzz: ``python -m tests.fuzz --solves 20000 --seed 1 --jobs 2``; exit code 1 where there are findings."""

import argparse
import dataclasses
import itertools
import json
import re
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.cases import Case
from tests.fuzz.judging import Finding
from tests.fuzz.shrinking import shrunk
from tests.fuzz.workers import Mode, farm, tally_of

CASES_OF_A_SEED = 1_000_000
"""Case number i of seed S has the seed S * this + i: what `--only` takes."""

PAUSE = 30.0
"""Seconds between lines that say how far it is."""


def main(arguments=None):
    chosen = _parse(arguments)
    if chosen.again:
        return _again(chosen)
    first = chosen.seed * CASES_OF_A_SEED
    seeds = [chosen.only] if chosen.only is not None else range(first, first + CASES_OF_A_SEED)
    if chosen.cases is not None:
        seeds = itertools.islice(seeds, chosen.cases)
    print(f"seed {chosen.seed}: cases from {first} on, {chosen.jobs} processes", flush=True)
    answered, refused, causes, cases, started = Counter(), Counter(), {}, 0, time.monotonic()
    spoken = started
    for tally in _tallies(seeds, chosen):
        answered += tally.answered
        refused += tally.refused
        cases += bool(tally.answered or tally.refused)
        if time.monotonic() - spoken > PAUSE:
            spoken = time.monotonic()
            print(f"{answered.total()} solves in {cases} cases", file=sys.stderr, flush=True)
        for finding in (found for found in tally.findings if found.rule not in chosen.without):
            causes.setdefault(finding.cause, []).append((tally.seed, finding))
            if len(causes[finding.cause]) == 1:
                _show(tally.seed, finding, answered.total(), chosen)
        if chosen.cases is None and answered.total() >= chosen.solves:
            break
    seconds = time.monotonic() - started
    print(f"{answered.total()} solves and {refused.total()} refusals in {cases} cases, {seconds:.0f} s")
    if chosen.table:
        for name in sorted(answered | refused):
            print(f"  {name:24} {answered[name]:6} answered {refused[name]:6} refused")
    for (rule, algorithm, told), found in sorted(causes.items()):
        print(f"{len(found):5} x {rule} of {algorithm}, first in the case of seed {found[0][0]}{told and ': '}{told}")
    print(f"{sum(map(len, causes.values()))} findings of {len(causes)} kinds")
    return 1 if causes else 0


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules[__name__].__doc__)
    parser.add_argument("--solves", type=int, default=2000, help="answers to be had (refusals do not count)")
    parser.add_argument("--cases", type=int, help="instances to be drawn, instead of a number of solves")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: in this one, without a watchdog")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a solve hangs")
    parser.add_argument("--only", type=int, metavar="SEED", help="the one case of this seed")
    parser.add_argument("--algorithm", action="append", default=[], metavar="NAME", help="only these; may be repeated")
    parser.add_argument("--portfolio", action="store_true", help="only what `auto` promises")
    parser.add_argument("--without", action="append", default=[], metavar="RULE", help="findings not to be spoken of")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="where findings are written")
    parser.add_argument("--table", action="store_true", help="how often each algorithm answered")
    parser.add_argument("--again", type=Path, metavar="FILE", help="judge a finding's file again")
    parser.add_argument("--shrink", action="store_true", help="with --again: write the smallest such case beside it")
    return parser.parse_args(arguments)


def _tallies(seeds, chosen):
    mode = Mode(chosen.portfolio, frozenset(chosen.algorithm))
    if chosen.jobs == 0 or chosen.only is not None:
        return (tally_of(seed, mode) for seed in seeds)
    return farm(seeds, mode, jobs=chosen.jobs, limit=chosen.limit)


def _show(seed, finding, solves, chosen):
    """Print the first finding of a kind, and write it to a file."""
    names = {solve.algorithm for solve in finding.solves} | {finding.algorithm}
    case = Mode(chosen.portfolio).case(seed).only(names)
    chosen.findings.mkdir(parents=True, exist_ok=True)
    path = chosen.findings / (re.sub(r"[^\w-]+", "-", f"{finding.rule}-{finding.algorithm}-{seed}") + ".json")
    document = case.to_document() | {"finding": dataclasses.asdict(finding) | {"solves": len(finding.solves)}}
    path.write_text(json.dumps(document | {"portfolio": chosen.portfolio}, indent=1), encoding="utf-8")
    print(f"--only {seed} (after {solves} solves): {finding.rule}: {finding.algorithm}: {finding.message}\n  {path}")
    sys.stdout.flush()


def _again(chosen):
    text = chosen.again.read_text(encoding="utf-8")
    about, case = json.loads(text), Case.read(text)
    look = Mode(about["portfolio"]).judge
    cause = Finding(**about["finding"]).cause
    _, findings = look(case)
    for finding in findings:
        print(f"{finding.rule}: {finding.algorithm}: {finding.message}")
    if chosen.shrink and any(finding.cause == cause for finding in findings):
        case, finding = shrunk(case, cause, look)
        path = chosen.again.with_suffix(".small.json")
        path.write_text(json.dumps(about | case.to_document()), encoding="utf-8")
        print(f"{path}: {finding.message}\n{json.dumps(case.to_document())}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
