"""Faults of what is read of a schedule document, and of what is believed of a proposal."""

from tests.mutants.fault import faults_of

DOCUMENT, VERIFYING, CONCLUSION = "schedule/document.py", "solving/verifying.py", "solving/conclusion.py"
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
            ("tests/solving/test_single.py",),
        ),
    ],
)
