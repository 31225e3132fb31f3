"""Draw instances, solve them with every algorithm, and judge the answers; exit code 1 if a rule is broken."""

import argparse
import itertools
import sys
import time
from collections import Counter
from pathlib import Path

from remat.plugin import registry
from tests.fuzz.failures import failure_document, read_failure, write_failure
from tests.fuzz.forms import DRAWN_FOR, FORMS, KINDS
from tests.fuzz.reduction import reduced
from tests.fuzz.trial import judge
from tests.fuzz.workers import Mode, farm, tally_of

CASES_OF_A_SEED = 1_000_000
"""Case number i of seed S has the seed S * this + i, which `--only` takes."""

PAUSE = 30.0
"""Seconds between lines of progress."""


def main(arguments=None):
    """Run the fuzzer; return the exit code."""
    chosen = _parse(arguments)
    if chosen.again:
        return _again(chosen)
    first = chosen.seed * CASES_OF_A_SEED
    seeds = [chosen.only] if chosen.only is not None else range(first, first + CASES_OF_A_SEED)
    if chosen.cases is not None:
        seeds = itertools.islice(seeds, chosen.cases)
    print(f"seed {chosen.seed}: cases from {first} on, {chosen.jobs} processes", flush=True)
    run = _Run(chosen)
    for tally in _tallies(seeds, chosen):
        run.add(tally)
        if chosen.cases is None and run.answered.total() >= chosen.solves:
            break
    run.conclude()
    return 1 if run.causes else 0


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=sys.modules[__name__].__doc__)
    parser.add_argument("--solves", type=int, default=2000, help="answers to collect (refusals do not count)")
    parser.add_argument("--cases", type=int, help="instances to draw, instead of a number of solves")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0: in this one, without a watchdog")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds after which a solve hangs")
    parser.add_argument("--only", type=int, metavar="SEED", help="the one case of this seed")
    parser.add_argument("--form", choices=sorted(FORMS), help="draw this form only")
    parser.add_argument("--algorithm", action="append", default=[], metavar="NAME", help="only these; repeatable")
    parser.add_argument("--without", action="append", default=[], metavar="RULE", help="findings to leave out")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="where failures are written")
    parser.add_argument("--table", action="store_true", help="how often each algorithm answered, by form")
    parser.add_argument("--no-reduction", action="store_true", help="write failures as they were drawn")
    parser.add_argument("--again", type=Path, metavar="FILE", help="judge the file of a failure again")
    parser.add_argument("--reduce", action="store_true", help="with --again: also write a smaller file")
    return parser.parse_args(arguments)


def _tallies(seeds, chosen):
    mode = Mode(chosen.form, frozenset(chosen.algorithm), not chosen.no_reduction)
    if chosen.jobs == 0 or chosen.only is not None:
        return (tally_of(seed, mode) for seed in seeds)
    return farm(seeds, mode, jobs=chosen.jobs, limit=chosen.limit)


class _Run:
    """Counts and findings of a run."""

    def __init__(self, chosen):
        self.chosen = chosen
        self.answered, self.refused, self.seconds = Counter(), Counter(), Counter()
        self.causes, self.failures, self.cases = {}, Counter(), 0
        self.started = self.told = time.monotonic()

    def add(self, tally):
        """Add the outcome of one case; write the first failure of each cause."""
        self.answered += tally.answered
        self.refused += tally.refused
        self.seconds += tally.seconds
        self.cases += bool(tally.answered or tally.refused)
        if time.monotonic() - self.told > PAUSE:
            self.told = time.monotonic()
            print(f"{self.answered.total()} solves in {self.cases} cases", file=sys.stderr, flush=True)
        for finding, document in tally.findings:
            if finding.rule in self.chosen.without:
                continue
            self.failures[finding.algorithm] += 1
            self.causes.setdefault(finding.cause, []).append(tally.seed)
            if len(self.causes[finding.cause]) == 1:
                self._show(tally.seed, finding, document)

    def _show(self, seed, finding, document):
        where = "" if document is None else f"\n  {write_failure(self.chosen.findings, document)}"
        print(f"--only {seed} (after {self.answered.total()} solves): {finding.rule}: {finding.algorithm}: ", end="")
        print(f"{finding.message}{where}", flush=True)

    def conclude(self):
        """Print the tables and the kinds of findings."""
        seconds = time.monotonic() - self.started
        print(f"{self.answered.total()} solves and {self.refused.total()} refusals in {self.cases} cases, ", end="")
        print(f"{seconds:.0f} s")
        if self.chosen.table:
            self._tables()
        for (rule, algorithm, told), seeds in sorted(self.causes.items()):
            print(f"{len(seeds):5} x {rule} of {algorithm}, first in case {seeds[0]}{told and ': '}{told}")
        print(f"{sum(map(len, self.causes.values()))} findings of {len(self.causes)} kinds")

    def _tables(self):
        forms = sorted({form for form, _ in self.answered | self.refused})
        print("form                    answered  refused    seconds")
        for form in forms:
            counts = [sum(count for (own, _), count in table.items() if own == form) for table in self._counters()]
            print(f"  {form:20} {counts[0]:9} {counts[1]:8} {counts[2]:10.1f}")
        print("algorithm               answered  refused  failures    seconds  drawn for it")
        for name in ["auto", *sorted({entry.name for kind in KINDS for entry in registry.algorithms(kind)})]:
            counts = [sum(count for (_, own), count in table.items() if own == name) for table in self._counters()]
            drawn = ", ".join(form for form, names in DRAWN_FOR.items() if name in names)
            print(f"  {name:20} {counts[0]:9} {counts[1]:8} {self.failures[name]:9} {counts[2]:10.1f}  {drawn}")

    def _counters(self):
        return self.answered, self.refused, self.seconds


def _again(chosen):
    case, known = read_failure(chosen.again.read_text(encoding="utf-8"))
    _, findings = judge(case, focus=known.rule or None)
    for finding in findings:
        print(f"{finding.rule}: {finding.algorithm}: {finding.message}")
    same = next((finding for finding in findings if finding.rule == known.rule), None)
    if chosen.reduce and same is not None:
        smaller, finding = reduced(case, same, judge)
        path = write_failure(chosen.again.parent / "reduced", failure_document(smaller, finding))
        print(f"{path}: {finding.message}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
