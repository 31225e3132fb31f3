"""`python -m remat` is the command `remat`."""

from __future__ import annotations

from remat.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
