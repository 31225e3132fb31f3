"""Paths in the checkout, so that tests can move between folders."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
INSTANCES = ROOT / "instances"
REFERENCE = ROOT / "tests" / "data" / "reference"
