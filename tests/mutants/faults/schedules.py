"""Faults in reading schedule documents and in checking proposals."""

from tests.mutants.fault import faults_of

DOCUMENT, VERIFYING, CONCLUSION = "schedule/document.py", "solving/verifying.py", "solving/conclusion.py"
READING, OF_READING = "schedule/reading.py", ("tests/schedule/test_reading.py",)
OF_VERIFY = ("tests/cli/test_verify.py",)

FAULTS = faults_of(
    "solver/remat",
    ("tests/schedule/test_document.py",),
    [
        (
            DOCUMENT,
            "    _check_keys(document)\n",
            "",
            "unknown keys around the steps are refused",
        ),
        (
            DOCUMENT,
            "part if isinstance(part, list) else [part]",
            "[] if isinstance(part, list) else [part]",
            "unknown keys in lists are refused",
        ),
        (
            VERIFYING,
            "if foreign and not any_instance:",
            "if False:",
            "a schedule of another instance is not ok",
            OF_VERIFY,
        ),
        (
            CONCLUSION,
            "proposal.peak != report.peaks[memory].size",
            "proposal.peak < report.peaks[memory].size",
            "a claimed peak above the verified one is a false claim",
            ("tests/solving/test_problem_setup.py",),
        ),
        *(
            (file, right, wrong, breaks, OF_READING)
            for file, right, wrong, breaks in (
                (READING, "if not part.has_keys(keys) and", "if False and", "a key twice in a step is refused"),
                (READING, "if None in starts:", "if False:", "all steps have start times, or none"),
                (READING, "column.min() >= 0 and", "", "times before 0 are looked at"),
                (READING, "any(not 0 <= other < index for", "any(not 0 <= other for", "steps come after earlier ones"),
                ("instance/lazy_text.py", "and not _has_long_number(data)", "", "numbers of many digits are refused"),
            )
        ),
        ("schedule/writing.py", "if amount != WHOLE:", "if False:", "partial moves are written"),
        *(
            ("instance/column_parser.py", right, wrong, breaks, ("tests/instance/test_column_parser.py",))
            for right, wrong, breaks in (
                ("if not part.has_keys(add(part.records)):", "if not add(part.records):", "a key twice is refused"),
                ("if len(self.index) < before + len(names):", "if False:", "no two values have one name"),
                ("if len(set(ids)) < len(ids) or", "if", "no two tasks have one name"),
                ("if (first[reads.items] < reads.rows).all():", "if True:", "every task can run"),
                ("if (codes[1:] == codes[:-1]).any():", "if False:", "a value is listed once"),
                ('"required"][-1]).any():', '"required"][-1]).all():', "what runs once is required"),
            )
        ),
    ],
)
