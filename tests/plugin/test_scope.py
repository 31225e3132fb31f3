"""docs/explanation/scope.md names what the literature has, and nothing that does not exist here."""

import json
import re

import pytest

from remat.cli.main import COMMANDS
from remat.generate.catalogue import FAMILIES
from remat.plugin import registry
from remat.plugin.options import make_options
from tests import places

PAGE = places.DOCS / "explanation" / "scope.md"
REASON = "not covered, because"

THE_LIST = """
Griewank 1992; Grimm, Pottier, Rostaing 1996; Griewank & Walther 2000; Walther & Griewank 2008; Stumm & Walther 2009;
Aupy et al. 2016; Aupy & Herrmann 2017; Herrmann & Pallez 2020; Schanen et al. 2016; Pringle et al. 2016;
Kukreja et al. 2018; Siskind & Pearlmutter 2018; Gruslys et al. 2016; Beaumont et al. RR-9302;
Chen et al. 2016; PyTorch periodic; PyTorch selective; rotor 2019; Feng & Huang 2021; Kumar et al. 2019;
Checkmate 2020, program; Checkmate 2020, rounding; Kusumoto et al. 2019; DTR 2020; Pleiss et al. 2017;
Rota Bulò et al. 2018; Moccasin 2023; POET 2022; Rockmate 2023; HiRemate 2025; OffMate; torchtitan's budget policy;
vDNN 2016; vDNN++ 2019; cDMA 2018; memory-centric 2018; Meng et al. 2017; TFLMS 2018; AutoSwap 2019; SwapAdvisor 2020;
SuperNeurons 2018; Capuchin 2020; Beaumont et al. 2020; Beaumont et al. 2021 (POFO); Beaumont et al. 2022; L2L 2020;
M6-10T 2021; ZeRO-Offload 2021; ZeRO-Infinity 2021; ZeRO activation checkpoints 2020;
model parallelism 2012; plain data parallelism; tensor parallelism (Megatron); GPipe; PipeDream; PipeDream-2BW; DAPPLE;
PipeMare; SpecTrain, XPipe; Megatron interleaved; GEMS; Chimera; TeraPipe; Varuna; FTPipe; HetPipe; Pipe-torch; Piper;
PipePar; TAPP; Tarnawski et al. 2020; MadPipe; Beaumont et al. 2021; zero bubble; DualPipe, DualPipeV; PipeOffload;
OptPipe; ZeRO 1-3; FSDP; DeepSpeed; Adam, 8-bit, 4-bit optimizers; CPU optimizer; fused optimizer; 1-bit Adam;
Aji & Heafield; QSGD; sign SGD; PowerSGD; GradZip; GRACE; LARS, LAMB; Few-bit Backward; randomised linear layers;
tensorised embeddings; approximate gradients;
Table 1: rematerialisation; Table 1: offloading of activations; Table 1: offloading of weights;
Table 1: offloading of optimizer states; Table 1: data parallelism, plain and sharded;
Table 1: model and pipeline parallelism; Table 1: states of 8 bits; Table 2; Table 3: tensors in GPU cache;
Table 4: partition by even weights; Table 4: partition by Megatron's heuristic;
Table 4: partition by Chimera's brute force; Table 5; Table 6; roofline model;
Liu 1986; Liu 1987; Jacquelin et al. 2011, MinMem; Jacquelin et al. 2011, MinIO; Agullo et al. 2010; Agullo et al. 2016;
Marchal et al. 2013; Kayaaslan et al. 2018; Aupy et al. 2017; proportional mapping; pebble game; StarPU; OmpSs, StarSs;
PaRSEC, DAGuE; Xkaapi; ONNX Runtime; ONNC
"""


def rows():
    """Return literature, what is here, and the remark of each line of the page; names are separated by semicolons."""
    found = []
    for item in re.split(r"^- ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        line = " ".join(item.split("\n\n")[0].split())
        match = re.fullmatch(r"(.+?): (?=`|not covered)(`[^`]+`(?:, `[^`]+`)*)?(?:; )?(.*)", line)
        assert match, line
        found.append((match[1], match[2] or "", match[3]))
    return found


def fields():
    """Return the keys of instances, as the schema lists them."""
    schema = json.loads((places.DOCS / "schema" / "remat.instance-3.json").read_text(encoding="utf-8"))
    found, left = set(), [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            found.update(one.get("properties", {}))
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return found


def exists(token):
    """Whether a token names an algorithm, one with an option, a kind, a field, a generator or a command."""
    first, *rest = token.split()
    known = {algorithm.name: algorithm for algorithm in registry.algorithms()}
    if first == "generate":
        return "/".join(rest) in FAMILIES
    if first == "remat":
        return len(rest) == 1 and rest[0] in COMMANDS
    if first in known and rest:
        return make_options(known[first], dict(one.split("=") for one in rest)) is not None
    return not rest and (first in known or first in registry.KINDS or first in fields())


@pytest.mark.parametrize("name", [" ".join(name.split()) for name in THE_LIST.split(";")])
def test_every_name_has_its_row(name):
    assert any(re.search(r"(^|; )" + re.escape(name) + r"($|[,;: ])", literature) for literature, _, _ in rows())


def test_rows_name_what_exists_or_a_reason():
    for literature, here, remark in rows():
        tokens = re.findall(r"`([^`]+)`", here)
        assert all(exists(token) for token in tokens), (literature, here)
        assert tokens or REASON in remark, f"{literature}: neither covered nor a reason"


def test_every_algorithm_with_a_reference_is_on_the_page():
    shown = {token.split()[0] for _, here, _ in rows() for token in re.findall(r"`([^`]+)`", here)}
    own = ("-", "this project")
    missing = [a.name for a in registry.algorithms() if not a.reference.startswith(own) and a.name not in shown]
    assert not missing
