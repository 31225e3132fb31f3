"""The table of claims in docs/algorithms.md, from the metadata: ``python -m tests.plugin.claims_page`` writes it."""

from remat.plugin import registry
from tests import places

PAGE = places.DOCS / "algorithms.md"
BEGIN, END = "<!-- generated: python -m tests.plugin.claims_page -->", "<!-- end of the generated table -->"

ONE_SCHEDULE = "its one schedule"


def generated():
    """Return the part of the page between the marks."""
    lines = ["| algorithms | guarantee | class | proves infeasible |", "|---|---|---|---|"]
    groups = {}
    for entry in registry.algorithms():
        groups.setdefault(_row(entry), []).append(entry.name)
    ranks = ("exact", "bounded", "strategy", "heuristic")
    for row in sorted(groups, key=lambda row: (ranks.index(row[0]), row)):
        guarantee, within, infeasible = row
        listed = ", ".join(f"`{name}`" for name in groups[row])
        lines.append(f"| {listed} | {guarantee} | {within or '-'} | {infeasible} |")
    return "\n".join([BEGIN, "", *lines, "", END])


def _row(entry):
    if entry.guarantee == "strategy":
        return entry.guarantee, ONE_SCHEDULE, ONE_SCHEDULE
    infeasible = "the same class" if entry.within else "no class"
    return entry.guarantee, entry.within, infeasible


def main():
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + generated() + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
