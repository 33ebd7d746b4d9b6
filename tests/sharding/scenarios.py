"""What two processes do together: `python scenarios.py NAME`, in each of them.

Each writes what it found to found-NUMBER.json. Without the environment of a pair the same
functions run alone, which is what the tests compare with.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import tensorstore

import sake_jax as sj
from sake_jax import sharding
from sake_jax.conversion import convert, units
from sake_jax.conversion.source import Safetensors

GOLDENS = Path(__file__).parents[1] / "goldens"
PROMPTS = [[1, 2, 3, 4], [5, 6, 7, 3, 2, 1, 4], [9]]
LENGTH = 8
BATCH = 3 * 2**20
"""Bytes that a conversion saves at once, so that there are several batches."""
GUIDANCES = {
    "none": sj.identity(),
    "sequence": sj.sake(1.0),
    "batch": sj.chain(sj.top_p(0.9), sj.sake(1.0, scope="batch", self_term=0.0)),
}
QUICK = {"llada": {"none": ((2, 1, 4),)}}
"""Meshes for a model and a guidance: over all devices, over four of each process, or none."""
EVERY = {
    "llada": {"sequence": ((1, 2, 4), (1, 1, 2), None), "batch": ((4, 1, 2), (2, 1, 2))},
    "dream": {"sequence": ((4, 2, 1),), "batch": ((2, 2, 2), None)},
    "mdlm": {"sequence": ((2, 2, 2),), "batch": ((4, 1, 2),)},
    "bd3lm": {"sequence": ((2, 2, 2), (4, 1, 1)), "batch": ((4, 1, 2),)},
    "tinystories": {"sequence": ((2, 1, 4),), "batch": ((8, 1, 1), (1, 2, 2))},
}


def sampler_for(lm: sj.LanguageModel, guidance: str) -> sj.Sampler:
    if guidance == "none":
        return sj.masked(lm, length=4, draw=sj.temperature(0.8))
    shared = {"length": LENGTH, "guidance": GUIDANCES[guidance], "draw": sj.temperature(0.8)}
    if lm.config.family == "mdlm":
        return sj.ancestral(lm, steps=LENGTH, **shared)
    if lm.config.family == "bd3lm":
        return sj.block(lm, **shared)
    return sj.masked(lm, block=LENGTH // 2, cache="dual", **shared)


def written(name: str, guidance: str, sizes: tuple[int, ...] | None) -> dict:
    """Tokens and a little more; all processes together, or this one alone."""
    mesh = sj.mesh(*sizes) if sizes else None
    lm = sj.load(name if name == "tinystories" else GOLDENS / name, mesh=mesh)
    options = {"samples": 3, "batch": 6, "stop": [7], "trajectory": True, "divided": True}
    sampler = sampler_for(lm, guidance)
    out = sj.generate(lm, sampler, PROMPTS, key=jax.random.key(0), **options)
    return {
        "tokens": out.tokens.tolist(),
        "ended": out.ended,
        "entropy": out.info.entropy.tolist(),
        "trajectory": out.trajectory.tolist(),
        "checksum": out.settings["model"]["checksum"],
    }


def cases(chosen: dict) -> Iterator[tuple]:
    for name, guidances in chosen.items():
        for guidance, meshes in guidances.items():
            for sizes in meshes:
                yield name, guidance, sizes


def tokens(which: str) -> dict:
    """Every case of QUICK or EVERY, by its name."""
    chosen = {"quick": QUICK, "every": EVERY}[which]
    return {str(case): written(*case) for case in cases(chosen)}


def likelihood() -> dict:
    """A model over all devices scores texts."""
    mesh = sj.mesh(data=2, tensor=4) if sharding.several_processes() else None
    lm = sj.load(GOLDENS / "llada", mesh=mesh)
    found = sj.bound(lm, [[1, 2, 3], [4, 5, 6, 7]], key=jax.random.key(0), draws=4, batch=4)
    return {"value": found.value.tolist()}


def talk() -> dict:
    """What processes tell each other, and errors of process 0."""
    me = jax.process_index()
    found = {
        "gathered": sharding.gather_from_all("x" * (me + 1)),
        "told": sharding.broadcast_from_leader(lambda: me),
    }
    try:
        sharding.broadcast_from_leader(lambda: [][1])
    except (IndexError, ValueError) as error:
        found["error"] = str(error)
    for sizes in ((1, 1, 3), (2, 1, 1), (1, 1, 16)):
        try:
            found[str(sizes)] = len(sj.mesh(*sizes).local_devices)
        except ValueError as error:
            found[str(sizes)] = str(error)
    return found


def count_reads() -> list[int]:
    """Bytes of every array that is read from safetensors from now on."""
    seen, read = [], Safetensors.read

    def counting(self, name, index):
        array = read(self, name, index)
        seen.append(array.nbytes)
        return array

    Safetensors.read = counting
    return seen


def converted(source: str, destination: str, dtype: str) -> dict:
    """Goes on with a conversion."""
    units.BATCH, seen = BATCH, count_reads()
    manifest = convert(source, destination, dtype=dtype or None)
    files = [path.stat().st_size for path in Path(source).glob("*.safetensors")]
    # Scales are computed from their kernels, which are read once more.
    return {"units": manifest.units, "read": sum(seen), "all": sum(files) * (2 if dtype else 1)}


def counted(source: str, destination: str) -> dict:
    """Converts and loads; the share of a checkpoint's bytes that this process reads of each."""
    seen = count_reads()

    def of_files() -> int:
        """Bytes that came from the files of a converted checkpoint, chunks and all."""
        name = "/tensorstore/kvstore/file/bytes_read"
        metrics = tensorstore.experimental_collect_matching_metrics(name)
        return sum(value["value"] for metric in metrics for value in metric["values"])

    manifest = convert(source, destination, mesh={"tensor": 8})
    found = {"convert": sum(seen), "units": manifest.units}
    seen.clear()
    spread = sj.load(source, mesh=sj.mesh(tensor=8))
    found |= {
        "load": sum(seen),
        "bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(spread.params)),
    }
    before = of_files()
    again = sj.load(destination, mesh=sj.mesh(tensor=8))
    found["files"] = of_files() - before
    equal = jax.jit(lambda a, b: jax.tree.map(lambda x, y: (x == y).all(), a, b))
    return found | {"same": all(map(bool, jax.tree.leaves(equal(spread.params, again.params))))}


def fails() -> dict:
    """Process 1 has a bug, while process 0 waits for it."""
    if jax.process_index() == 1:
        raise RuntimeError("something is broken")
    return {"gathered": sharding.gather_from_all(0)}


def waits() -> dict:
    """Both talk until one of them is gone."""
    while True:
        sharding.gather_from_all(0)
        Path(f"talked-{jax.process_index()}").touch()


def main(name: str, *words: str) -> None:
    sharding.connect()
    found = globals()[name](*words)
    Path(f"found-{jax.process_index()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
