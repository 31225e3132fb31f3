"""The site's page of all algorithms, from their metadata: ``python -m tests.plugin.catalogue_page`` prints it."""

from remat.plugin import registry
from remat.plugin.selection import declared

ONE_SCHEDULE = "its one schedule"
HEAD = """# Every algorithm

What the metadata of all algorithms declares; `remat algorithms NAME` shows one of them with its options.
[Algorithms](algorithms.md) explains the columns.
"""


def page():
    """Return the page as Markdown."""
    parts = f"## By family\n\n{zoo()}\n## Guarantees\n\n{guarantees()}\n\n## Need for slack\n\n{slack()}"
    return f"{HEAD}\n{parts}\n\n## `auto`\n\n{trials()}"


def guarantees():
    """Return the table of guarantees and classes, one row for all algorithms with the same claim."""
    lines = ["| algorithms | guarantee | class | proves infeasible |", "|---|---|---|---|"]
    groups = {}
    for entry in registry.algorithms():
        groups.setdefault(_row(entry), []).append(entry.name)
    ranks = ("exact", "bounded", "strategy", "heuristic")
    for row in sorted(groups, key=lambda row: (ranks.index(row[0]), row)):
        guarantee, within, infeasible = row
        listed = ", ".join(f"`{name}`" for name in groups[row])
        lines.append(f"| {listed} | {guarantee} | {within or '-'} | {infeasible} |")
    return "\n".join(lines)


def slack():
    """Return the table of algorithms that may need more than the peak of their schedule, one row for each reason."""
    groups = {}
    for entry in registry.algorithms():
        groups.setdefault(entry.needs_slack, []).append(f"`{entry.name}`")
    lines = ["| algorithms | why the peak of the schedule may be too small a budget |", "|---|---|"]
    return "\n".join(lines + [f"| {', '.join(groups[why])} | {why} |" for why in sorted(groups) if why])


def zoo():
    """Return the list of all algorithms with their references, one section a family."""
    families = {}
    for entry in registry.algorithms():
        kinds = "any" if registry.ANY_KIND in entry.kinds else ", ".join(entry.kinds)
        row = (kinds, entry.guarantee, entry.reference or "-", entry.deviates or "-")
        families.setdefault(entry.family, {}).setdefault(row, []).append(entry.name)
    lines = []
    for family in sorted(families):
        lines += [f"### {family}", "", "| name | kinds | guarantee | reference | deviates |", "|---|---|---|---|---|"]
        for row, names in sorted(families[family].items(), key=lambda each: each[1]):
            listed = ", ".join(f"`{name}`" for name in names)
            lines.append("| " + " | ".join((listed, *row)) + " |")
        lines.append("")
    return "\n".join(lines)


def trials():
    """Return the algorithms that `auto` runs for each kind of instance, in order."""
    lines = []
    for kind in registry.KINDS:
        rows = [(group, candidate) for group, candidate in declared(kind) if not candidate.algorithm.covered_by]
        lines += [f"### `auto` for kind {kind}", "", "| group | algorithm | when |", "|---|---|---|"]
        for group, candidate in rows:
            given = ", ".join(f"{name}={value}".lower() for name, value in candidate.trial.options.items())
            name = f"`{candidate.algorithm.name}`" + (f" with {given}" if given else "")
            lines.append(f"| {group} | {name} | {candidate.trial.when or 'always'} |")
        covered = {}
        for algorithm in registry.algorithms(kind):
            if algorithm.covered_by and algorithm.trials:
                covered.setdefault(algorithm.covered_by, []).append(f"`{algorithm.name}`")
        lines += ["", "Covered by others:", ""] if covered else [""]
        for by, names in sorted(covered.items()):
            accepted = [f"`{name}`" for name in by if name in {a.name for a in registry.algorithms(kind)}]
            lines.append(f"- {', '.join(names)}: by {', '.join(accepted)}")
        many = [f"`{algorithm.name}`" for algorithm in registry.algorithms(kind) if algorithm.many]
        lines += ["", f"Many budgets: {', '.join(many)}.", ""] if many else [""]
    return "\n".join(lines)


def _row(entry):
    if entry.guarantee == "strategy":
        return entry.guarantee, ONE_SCHEDULE, ONE_SCHEDULE
    infeasible = "the same class" if entry.within else "no class"
    return entry.guarantee, entry.within, infeasible


if __name__ == "__main__":
    print(page())
