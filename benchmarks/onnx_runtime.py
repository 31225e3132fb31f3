"""The memory of ONNX models in their own order against the block that ONNX Runtime allocates for them.

    python -m benchmarks.onnx_runtime [NAME...]

ONNX Runtime folds constants and fuses normalizations, and writes the graph that it runs. Its arena logs the block for
all intermediate tensors, which it plans after the first run. That graph is imported here. The table has the block, the
peak of the same order, the arena of `remat layout` for it, and the minimum budget of any order; all in bytes, without
parameters. It needs onnx and onnxruntime.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

import remat
from remat.bridges.onnx.importing import import_model

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BLOCK = re.compile(r"\(requested\) num_bytes: (\d+)")


def run(model: str, output: str) -> None:
    """Run a model three times; the logs of the arena go to the standard error stream."""
    import onnxruntime as ort

    ort.set_default_logger_severity(0)
    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    # Strategy 1 extends the arena by what was asked for, and by no more.
    arena = {"max_mem": 0, "arena_extend_strategy": 1, "initial_chunk_size_bytes": 256, "max_dead_bytes_per_chunk": 256}
    ort.create_and_register_allocator(where, ort.OrtArenaCfg(arena))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = output
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    arguments = {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()}
    for number in range(3):
        print("run", number, file=sys.stderr, flush=True)
        session.run(None, arguments)


def compare(name: str, folder: Path) -> tuple[int, int, int, int]:
    """Return the block of ONNX Runtime, the peak and arena of its order, and the minimum budget of any order."""
    output = folder / f"{name}.onnx"
    command = [sys.executable, "-m", "benchmarks.onnx_runtime", "--run", str(LIGHT / f"light_{name}.onnx"), str(output)]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    blocks = [int(size) for size in BLOCK.findall(log[log.index("run 1") :])]
    instance = remat.load(import_model(str(output)).document)
    static = instance.static_memory
    own = remat.solve(instance, algorithm="keep-all")
    arena = remat.layout(own).arena
    least = remat.solve(instance, budget=1, time_limit=20).least_budget
    return max(blocks, default=0), sum(own.peak_memory.values()) - static, arena - static, least.size - static


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:])
        return
    names = sys.argv[1:] or sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("light_*.onnx"))
    print("| model | ONNX Runtime | its order | arena | any order | ONNX Runtime / its order |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            block, own, arena, least = compare(name, Path(folder))
            print(f"| {name} | {block:,} | {own:,} | {arena:,} | {least:,} | {block / own:.3f} |", flush=True)


if __name__ == "__main__":
    main()
