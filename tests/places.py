"""Where things lie in the checkout, so that a test may move without counting folders."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
INSTANCES = ROOT / "instances"
REFERENCE = ROOT / "tests" / "data" / "reference"
