"""The tables of docs/auto.md, from what the algorithms declare: ``python -m tests.plugin.auto_page`` writes them."""

from remat.plugin import registry
from remat.plugin.auto import declared
from tests import places

PAGE = places.DOCS / "auto.md"
BEGIN, END = "<!-- generated: python -m tests.plugin.auto_page -->", "<!-- end of what is generated -->"


def generated():
    """Return the part of the page between the marks."""
    lines = []
    for kind in registry.KINDS:
        rows = [(group, candidate) for group, candidate in declared(kind) if not candidate.algorithm.covered_by]
        lines += ["", f"### {kind}", "", "| group | algorithm | when |", "|---|---|---|"]
        for group, candidate in rows:
            given = ", ".join(f"{name}={value}".lower() for name, value in candidate.trial.options.items())
            name = f"`{candidate.algorithm.name}`" + (f" with {given}" if given else "")
            lines.append(f"| {group} | {name} | {candidate.trial.when or 'always'} |")
        covered = {}
        for algorithm in registry.algorithms(kind):
            if algorithm.covered_by and algorithm.trials:
                covered.setdefault(algorithm.covered_by, []).append(f"`{algorithm.name}`")
        lines += ["", "Covered by others:", ""] if covered else []
        for by, names in sorted(covered.items()):
            accepted = [f"`{name}`" for name in by if name in {a.name for a in registry.algorithms(kind)}]
            lines.append(f"- {', '.join(names)}: by {', '.join(accepted)}")
        many = [f"`{algorithm.name}`" for algorithm in registry.algorithms(kind) if algorithm.many]
        lines += ["", f"Many budgets: {', '.join(many)}."] if many else []
    return "\n".join([BEGIN, *lines, "", END])


def main():
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + generated() + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
