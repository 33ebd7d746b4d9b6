"""Conversion, loading and compilation at the size of LLaDA-8B.

Makes a synthetic checkpoint in the layout of LLaDA-8B (bfloat16, several shards), then measures,
each in a process of its own: plain copying of the files, the conversion (MB/s and the peak of
anonymous memory), a conversion killed half-way and continued, and loading onto 8 virtual devices.
Last, how long the forward pass of the 8B model takes to compile, without weights, by its layers.

    python benchmarks/conversion.py [--layers 14] [--folder build/conversion] [--json out.json]
"""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

import sake_jax as sj
from sake_jax.conversion import units, writer
from sake_jax.conversion.checkpoint import leaves
from sake_jax.conversion.families import family, recognise
from sake_jax.conversion.manifest import Manifest
from sake_jax.conversion.rules import expand
from sake_jax.files import write_atomically
from sake_jax.models import NetworkInput, abstract
from sake_jax.models import forward as network_forward

LLADA = {
    "architectures": ["LLaDAModelLM"],
    "d_model": 4096,
    "embedding_size": 126_464,
    "eos_token_id": 126_081,
    "mask_token_id": 126_336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12_288,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126_081,
    "rope_theta": 500_000.0,
    "weight_tying": False,
}
SHARD = 2 * 10**9
DEVICES = 8
ALLOWED = 1.5e9
"""Anonymous memory a conversion may use, besides twice the largest tensor."""


def make(folder: Path, config: dict[str, Any], shard_bytes: int = SHARD) -> int:
    """Writes a synthetic checkpoint shard by shard; returns the bytes of its largest tensor."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    ours = recognise(config).config(config)
    entries = expand(family("llada").table(ours, "model.transformer."), leaves(ours))
    random = np.random.default_rng(0)
    home: dict[str, str] = {}
    shard: dict[str, np.ndarray] = {}

    def flush() -> None:
        name = f"model-{len(set(home.values())) + 1:05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        home.update(dict.fromkeys(shard, name))
        shard.clear()

    for entry in entries:
        if shard and sum(t.nbytes for t in shard.values()) + 2 * np.prod(entry.shape) > shard_bytes:
            flush()
        # Mantissas at random, exponents as of trained weights.
        bits = random.integers(0, 2**16, entry.shape, np.uint16) & 0x80FF | 0x3C00
        shard[entry.source] = bits.view(ml_dtypes.bfloat16)
    flush()
    index = {"metadata": {}, "weight_map": home}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return max(2 * int(np.prod(entry.shape)) for entry in entries)


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory a process holds now; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon")), 0)
    except OSError:
        return 0


@dataclasses.dataclass
class Run:
    seconds: float
    peak: int
    """Bytes of anonymous memory, sampled every 5 ms."""
    output: str


def watched(
    task: str, *arguments: Any, kill: Callable[[], bool] = lambda: False, devices: int = 1
) -> Run:
    """One of TASKS in a process of its own, killed with SIGKILL as soon as `kill` says so."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, __file__, "--task", task, *map(str, arguments)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    begin, peak = time.perf_counter(), 0
    while process.poll() is None:
        peak = max(peak, anonymous(process.pid))
        if kill():
            process.send_signal(signal.SIGKILL)
        time.sleep(0.005)
    output = process.stdout.read() if process.stdout else ""
    expected = -signal.SIGKILL if kill() else 0
    if process.returncode != expected:
        raise RuntimeError(f"{task} ended with {process.returncode}")
    return Run(time.perf_counter() - begin, peak, output)


def copy_task(source: str, destination: str) -> None:
    """What conversion is compared with: the same bytes through one buffer, flushed to disk."""
    Path(destination).mkdir()
    begin = time.perf_counter()
    for file in sorted(Path(source).glob("*.safetensors")):
        with file.open("rb") as reader, (Path(destination) / file.name).open("wb") as writer:
            shutil.copyfileobj(reader, writer, 16 * 2**20)
            os.fsync(writer.fileno())
    print(time.perf_counter() - begin)


def convert_task(source: str, destination: str, batch: str) -> None:
    units.BATCH = int(batch)
    begin = time.perf_counter()
    writer.convert(source, destination)
    print(time.perf_counter() - begin)


def load_task(source: str, tensor: str) -> None:
    """Prints seconds, bytes of the model, and what one device holds at most."""
    begin = time.perf_counter()
    lm = sj.load(source, mesh=sj.mesh(tensor=int(tensor)))
    arrays = jax.tree.leaves(jax.block_until_ready(lm.params))
    seconds = time.perf_counter() - begin
    on_one = sum(a.addressable_shards[0].data.nbytes for a in arrays)
    print(json.dumps([seconds, sum(a.nbytes for a in arrays), on_one]))


TASKS = {"copy": copy_task, "convert": convert_task, "load": load_task}


def measure_conversion(
    folder: Path, config: dict[str, Any], shard_bytes: int = SHARD, batch: int = units.BATCH
) -> dict[str, Any]:
    """Copying, converting, killing and continuing, loading: everything but the compiler."""
    folder = folder / "sake-jax-conversion-benchmark"  # removed before and after
    shutil.rmtree(folder, ignore_errors=True)
    largest = make(folder / "source", config, shard_bytes)
    files = list((folder / "source").glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    found: dict[str, Any] = {"bytes": size, "shards": len(files), "largest": largest}

    copied = watched("copy", folder / "source", folder / "copy")
    shutil.rmtree(folder / "copy")
    found["copy"] = {"MB/s": size / 1e6 / float(copied.output)}

    whole_run = watched("convert", folder / "source", folder / "whole", batch)
    found["convert"] = {
        "MB/s": size / 1e6 / float(whole_run.output),
        "peak": whole_run.peak,
        "allowed": ALLOWED + 2 * largest,
    }
    whole_units = Manifest.read(folder / "whole").units
    shutil.rmtree(folder / "whole")

    journal = folder / "killed" / "journal.jsonl"
    half = len(whole_units) // 2

    def half_way() -> bool:
        return journal.is_file() and journal.read_text().count('"sha256"') >= half

    watched("convert", folder / "source", folder / "killed", batch, kill=half_way)
    kept = journal.read_text().count('"sha256"')
    resumed = watched("convert", folder / "source", folder / "killed", batch)
    found["killed"] = {
        "kept": kept,
        "of": len(whole_units),
        "seconds": float(resumed.output),
        "identical": Manifest.read(folder / "killed").units == whole_units,
        "verified": sj.conversion.verify(folder / "killed").ok,
    }
    for name in ("killed", "source"):
        run = watched("load", folder / name, DEVICES, devices=DEVICES)
        seconds, held, on_one = json.loads(run.output)
        found[f"load {'converted' if name == 'killed' else 'safetensors'}"] = {
            "MB/s": held / 1e6 / seconds,
            "model": held,
            "on one device": on_one,
            "peak": run.peak,
        }
    shutil.rmtree(folder)
    return found


def compile_seconds(layers: int, columns: int = 512) -> dict[str, float]:
    """Tracing and compiling the 8B forward pass with this many layers, weights left out."""
    config = recognise(LLADA).config(LLADA | {"n_layers": layers}).network
    shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16)  # noqa: E731
    params = jax.tree.map(shape, abstract(config))
    ids, flags = (jax.ShapeDtypeStruct((1, columns), kind) for kind in (jnp.int32, jnp.bool_))

    def forward(params, inputs):
        return network_forward(config, params, inputs).features

    begin = time.perf_counter()
    lowered = jax.jit(forward).lower(params, NetworkInput(ids, ids, flags))
    traced = time.perf_counter()
    lowered.compile()
    return {"trace": traced - begin, "compile": time.perf_counter() - traced}


def weight_bytes() -> dict[str, float]:
    """Bytes of LLaDA-8B's weights in bfloat16, and with int8 kernels."""
    config = recognise(LLADA).config(LLADA).network
    int8 = dataclasses.replace(config, quantized=True)
    sizes = {"bfloat16": sum(2 * leaf.size for leaf in jax.tree.leaves(abstract(config)))}
    kernel = lambda leaf: leaf.dtype == jnp.int8  # noqa: E731
    sizes["int8"] = sum(
        leaf.size * (1 if kernel(leaf) else 2) for leaf in jax.tree.leaves(abstract(int8))
    )
    return sizes


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    gb = lambda size: f"{size / 1e9:.2f} GB"  # noqa: E731
    c, k = found["convert"], found["killed"]
    lines = [
        f"Checkpoint: {gb(found['bytes'])} in {found['shards']} shards, "
        f"largest tensor {gb(found['largest'])}.",
        "",
        "| | MB/s | against copying | peak anonymous memory |",
        "|---|---|---|---|",
        f"| copy the files | {found['copy']['MB/s']:.0f} | 1.00 | |",
        f"| convert | {c['MB/s']:.0f} | {c['MB/s'] / found['copy']['MB/s']:.2f} "
        f"| {gb(c['peak'])} (allowed {gb(c['allowed'])}) |",
    ]
    for name in ("load safetensors", "load converted"):
        run = found[name]
        lines.append(
            f"| {name}, {DEVICES} devices | {run['MB/s']:.0f} "
            f"| {run['MB/s'] / found['copy']['MB/s']:.2f} | {gb(run['peak'])}, "
            f"{run['peak'] / run['model']:.2f} of the model |"
        )
    lines += [
        "",
        f"Killed with {k['kept']} of {k['of']} arrays written; the second run took "
        f"{k['seconds']:.1f} s; result identical: {k['identical']}, verified: {k['verified']}.",
        "",
        "| layers | trace | compile |",
        "|---|---|---|",
    ]
    for layers, seconds in found["compile"].items():
        lines.append(f"| {layers} | {seconds['trace']:.2f} s | {seconds['compile']:.2f} s |")
    sizes = found["weights"]
    lines += ["", f"LLaDA-8B: {gb(sizes['bfloat16'])} in bfloat16, {gb(sizes['int8'])} in int8."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=14, help="of the checkpoint; 14 are 8.2 GB")
    parser.add_argument("--folder", type=Path, default=Path("build/conversion"))
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    parser.add_argument("--task", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        TASKS[options.task[0]](*options.task[1:])
        return
    found = measure_conversion(options.folder, LLADA | {"n_layers": options.layers})
    found["compile"] = {layers: compile_seconds(layers) for layers in (1, 4, 8, 16, 32, 64)}
    found["weights"] = weight_bytes()
    print(table(found))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
