"""`remat decisions`: a table, JSON and CSV of what a schedule decides."""

import csv
import io
import json

import pytest

import remat
from remat.instance import save_instance

CHAIN = remat.chain(
    forward_time=[3, 1, 2], backward_time=2, output_size=[40, 30, 20], input_size=20, names=["a", "b", "=c"]
)


@pytest.fixture
def files(tmp_path):
    save_instance(CHAIN, tmp_path / "net.json")
    result = remat.solve(CHAIN, algorithm="keep-all")
    result.save(tmp_path / "plan.json")
    return result, [str(tmp_path / "plan.json"), "--of", str(tmp_path / "net.json")]


def test_all_formats_list_every_value(run, files):
    result, arguments = files
    table = run("decisions", *arguments)
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()[1 : 1 + len(result.decisions)]] == list(
        result.graph.values
    )
    rows = json.loads(run("decisions", *arguments, "--format", "json").out)
    assert rows == json.loads(json.dumps(result.decisions.to_dicts()))
    listed = list(csv.DictReader(io.StringIO(run("decisions", *arguments, "--format", "csv").out)))
    assert [row["value"] for row in listed] == list(result.graph.values)
    assert "'=c" in {row["module"] for row in listed}
