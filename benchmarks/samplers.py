"""What a run of the sampler costs: against LLaDA's own loop in torch, and against itself.

A model of random weights on the CPU, two threads on every side, all sides in turn. Ratios are of
medians, with 95 % intervals from a bootstrap over the rounds. Tokens are compared: of all sides
without a cache, and of those with one (a cache changes them). Guidance is also counted in the
compiler's flops of one whole step, here and at the shapes of LLaDA-8B, where nothing is run.

Needs torch for torch's sides only. Use a quiet machine: other work slows torch, whose threads wait
for each other after every operation, far more than us.

    python benchmarks/samplers.py [--repeats 7] [--json results.json] [--quick]
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sake_jax as sj
from sake_jax.files import write_atomically
from sake_jax.models import abstract, network
from sake_jax.models.config import TransformerConfig
from sake_jax.models.denoiser import NetworkDenoiser
from sake_jax.models.layers import UNROLLED
from sake_jax.planning.bench.interleaved import Side, measure_in_turn, report_progress
from sake_jax.planning.bench.scaled import random_model, scaled_config
from sake_jax.planning.forms import OnAllColumns
from sake_jax.samplers.loop import begin
from sake_jax.samplers.noise import gumbel
from sake_jax.samplers.step import step

THREADS = 2


@dataclasses.dataclass(frozen=True)
class Size:
    network: TransformerConfig
    prompt: int
    length: int
    steps: int
    block: int

    def __str__(self) -> str:
        c = self.network
        net = f"{c.N} layers, D {c.D:,}, F {c.F:,}, V {c.V:,}"
        return f"{net}; prompt {self.prompt}, {self.length} columns in {self.steps} steps"


FULL = Size(scaled_config(512, 32_768, 8, 8), prompt=128, length=128, steps=64, block=32)
LLADA = Size(scaled_config(4096, 126_464, 32, 32), prompt=128, length=128, steps=64, block=32)
QUICK = Size(scaled_config(32, 512, 2, 2), prompt=16, length=16, steps=8, block=4)
QUICK_DEEP = Size(scaled_config(32, 512, 12, 2), prompt=16, length=16, steps=8, block=4)
FORMS = {
    "unguided": None,
    "SAKE folded, raw": sj.sake(1.0, normalize="none"),
    "SAKE folded, unit RMS (default)": sj.sake(1.0),
    "SAKE window only, input table: `paper_sake`": sj.paper_sake(1.0, 20.0),
    "`top_p(0.95)` alone": sj.top_p(0.95),
    "SAKE projected: `chain(top_p(0.95), sake(1.0))`": sj.chain(sj.top_p(0.95), sj.sake(1.0)),
    "D-CFG: `classifier_free(1.5)`": sj.classifier_free(1.5),
}


def our_side(lm: sj.LanguageModel, prompt: np.ndarray, size: Size, **options: Any) -> Side:
    """`masked`, greedy without noise by default."""
    canvas = sj.canvas(prompt.tolist(), size.length, mask_id=size.network.V - 1)
    denoiser = options.pop("denoiser", lm.denoiser)
    options = {"steps": size.steps, "block": size.block, "noise": sj.still} | options
    sampler = sj.masked(denoiser, length=size.length, **options)
    return lambda: np.asarray(sj.run(sampler, lm.params, jax.random.key(0), canvas)[0].tokens)


def torch_sides(lm: sj.LanguageModel, prompt: np.ndarray, size: Size) -> dict[str, Side]:
    """The original, and what it would be with a part of it made faster; none without torch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch
    import torch_llada

    torch.set_num_threads(THREADS)
    leaves = {name: np.asarray(leaf) for name, leaf in network.flatten_params(lm.params).items()}
    theirs = torch_llada.Network(size.network, leaves, size.prompt + size.length)
    same = {"length": size.length, "steps": size.steps, "block": size.block}

    def side(**options: Any) -> Side:
        options |= same | {"mask_id": size.network.V - 1}
        return lambda: torch_llada.generate(theirs, prompt, **options)

    return {
        "torch, as the original": side(),
        "torch, softmax in float32": side(dtype=torch.float32),
        "torch, float32, head on the block": side(dtype=torch.float32, head="block"),
        "torch, dual cache as Fast-dLLM": side(cache=True),
        "torch, dual cache, float32": side(cache=True, dtype=torch.float32),
    }


def require_equal(tokens: dict[str, np.ndarray]) -> None:
    """All sides without a cache wrote the same, and all with one: a cache changes the tokens."""
    for cached in (False, True):
        names = [name for name in tokens if ("cache" in name) is cached]
        for one, other in itertools.pairwise(names):
            rule = f"{other} and {one} wrote different tokens: near ties (see --seed), or a bug"
            np.testing.assert_array_equal(tokens[other], tokens[one], rule)


def measure_loop(size: Size, lm: sj.LanguageModel, prompt, repeats: int) -> dict[str, Any]:
    """Our loop and torch's, with and without a cache."""
    ours = functools.partial(our_side, lm, prompt, size)
    sides = torch_sides(lm, prompt, size) | {
        "ours, head on all columns": ours(denoiser=OnAllColumns(lm.denoiser, sj.identity())),
        "ours, greedy by `temperature(0)`": ours(draw=sj.temperature(0.0), noise=gumbel),
        "ours": ours(),
        "ours, dual cache": ours(cache="dual"),
    }
    if size.block == size.length:  # a cache needs blocks
        sides = {name: side for name, side in sides.items() if "cache" not in name}
    bases = [name for name in ("ours", "ours, dual cache") if name in sides]
    return measure_in_turn(f"blocks of {size.block}", sides, repeats, bases, require_equal)


@functools.cache
def count(size: Size, form: str, all_columns: bool = False) -> np.ndarray:
    """Flops of one step, and of what is done once before the first; nothing is allocated.

    The compiler counts the body of a loop once. So deep networks, whose layers are a loop, are
    counted with one layer and with two: the rest is a straight line. (A filter's bisection is a
    loop too, of a few operations for each logit: its count is too low, its time is not.)
    """
    c = size.network
    if c.N > UNROLLED:
        shallow = (dataclasses.replace(size, network=dataclasses.replace(c, N=n)) for n in (1, 2))
        one, two = (count(now, form, all_columns) for now in shallow)
        return one + (c.N - 1) * (two - one)
    denoiser = (
        OnAllColumns(NetworkDenoiser(c), sj.identity()) if all_columns else NetworkDenoiser(c)
    )
    plan = {"length": size.length, "steps": size.steps, "block": size.block}
    sampler = sj.masked(denoiser, guidance=FORMS[form], noise=sj.still, **plan)
    canvas = sj.canvas([[0] * size.prompt], size.length, mask_id=c.V - 1)
    given = sampler, abstract(c), jax.random.key(0)
    state = jax.eval_shape(begin, *given, canvas)
    one_step = jax.jit(step).lower(*given, state)
    before = jax.jit(begin).lower(*given, canvas)
    report_progress(f"counting {c.N} layers, block {size.block}, {form}")
    return np.array([p.compile().cost_analysis().get("flops", 0.0) for p in (one_step, before)])


def count_all(size: Size, blocks: list[int], forms: list[str]) -> dict[str, Any]:
    """In unguided steps: the guidances; in steps with a window, the head on all columns."""
    unit = count(size, forms[0])[0]
    heads = {}
    for block in blocks:
        now = dataclasses.replace(size, block=block)
        heads[block] = float(count(now, forms[0], True)[0] / count(now, forms[0])[0])
    costs = {form: (count(size, form) / unit).tolist() for form in forms}
    return {"size": str(size), "unit": float(unit), "forms": costs, "all columns": heads}


def measure_all(sizes, blocks: list[int], seed: int, repeats: int, forms: list) -> dict[str, Any]:
    size, lm = sizes[0], random_model(sizes[0].network, seed)
    prompt = np.random.default_rng(seed).integers(0, size.network.V - 1, (1, size.prompt))
    loops = [dataclasses.replace(size, block=block) for block in blocks]
    guided = {form: our_side(lm, prompt, size, guidance=FORMS[form]) for form in forms}
    installed = [name for name in ("jax", "torch") if importlib.util.find_spec(name)]
    return {
        "versions": {name: importlib.metadata.version(name) for name in installed},
        "steps": size.steps,
        "flops": [count_all(now, blocks, forms) for now in sizes],
        "loops": [measure_loop(now, lm, prompt, repeats) for now in loops],
        "guidance": measure_in_turn("guidance", guided, repeats, forms[:1]),
    }


def rows(*lines: Iterable[Any]) -> list[str]:
    first, *others = ("| " + " | ".join(line) + " |" for line in lines)
    return ["", first, "|" + "---|" * (first.count("|") - 1), *others, ""]


def table(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    cell = lambda ratio: "{:.2f} ({:.2f} to {:.2f})".format(*ratio)  # noqa: E731
    here, there = found["flops"]
    lines = [f"{here['size']}; {found['versions']}; {THREADS} threads."]
    if "torch" not in found["versions"]:
        lines += ["", "**torch is not installed: its sides are missing.**"]
    lines += ["", "All sides without a cache wrote the same tokens, and so did all with one.", ""]
    for part in found["loops"]:
        body = [["", "ms a step", *(f"against {base}" for base in part["against"])]]
        for name, seconds in part["seconds"].items():
            ms = 1e3 * np.median(seconds) / found["steps"]
            body.append([name, f"{ms:.1f}", *(cell(b[name]) for b in part["against"].values())])
        lines += [f"### Time, {part['title']}", *rows(*body)]
    body = [["", "flops of a step", "at LLaDA-8B's shapes", "once a run", "at 8B", "time of a run"]]
    for form, ratio in found["guidance"]["against"]["unguided"].items():
        step_here, once_here = here["forms"][form]
        step_there, once_there = there["forms"][form]
        flops = (step_here, step_there, once_here, once_there)
        body.append([form, *(f"{number:.3f}" for number in flops), cell(ratio)])
    lines += ["### Guidance, in unguided steps and runs", *rows(*body)]
    lines += ["### The head on all columns, by flops, in steps with the head on the window", ""]
    for flops in (here, there):
        ratios = ", ".join(f"{r:.2f} (block {b})" for b, r in flops["all columns"].items())
        lines += [f"- {flops['size']}: {ratios}; a step is {flops['unit']:.3g} flops"]
    parts = [*found["loops"], found["guidance"]]
    ours = (s for part in parts for n, s in part["first"].items() if "torch" not in n)
    lines += ["", f"First runs of ours, with compilation: {max(ours):.1f} s at most."]
    cores = max(part["others"] for part in parts)
    lines += [f"Other processes used {cores:.2f} cores meanwhile{', TOO MANY' * (cores > 0.1)}."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=FULL.steps, help="fewer for a first look")
    parser.add_argument("--seed", type=int, default=0, help="of weights and prompt")
    parser.add_argument("--quick", action="store_true", help="tiny: to see that it runs")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # XLA makes as many threads as it finds cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    sizes, blocks, forms = (FULL, LLADA), [FULL.block, FULL.length], list(FORMS)
    if options.quick:
        sizes, blocks, forms = (QUICK, QUICK_DEEP), [QUICK.block], forms[:2]
    else:
        sizes = tuple(dataclasses.replace(size, steps=options.steps) for size in sizes)
    repeats = 2 if options.quick else options.repeats
    found = measure_all(sizes, blocks, options.seed, repeats, forms)
    print(table(found))
    if options.json:
        write_atomically(options.json, json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
