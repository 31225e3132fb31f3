"""One case from its solves to its findings."""

from tests.fuzz.invariance import unlike
from tests.fuzz.judging import answer
from tests.fuzz.together import ask_least, compare


def judge(case, begin=lambda algorithm: None):
    """Solve everything that a case asks, and judge each answer and all of them together.

    Parameters
    ----------
    case : Case
    begin : callable
        Told of each solve before it begins: what a watchdog waits for.

    Returns
    -------
    (answers, findings)
    """
    answers, findings = [], []
    for solve in case.solves:
        begin(solve.algorithm)
        answers.append(answer(case, solve))
    for given in answers:
        begin(f"{given.solve.algorithm} again")
        findings += [*given.findings, *ask_least(case, given)]
    begin("the comparison")
    findings += compare(case, answers)
    begin("the same otherwise")
    findings += unlike(case, answers)
    return answers, findings
