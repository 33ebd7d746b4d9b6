"""Which rows and which table should SAKE use? Measured on a tiny untied masked-diffusion model.

For every source x table x {literal, repulsion} this prints Corr[z, psi] (Proposition 1: positive
sharpens, negative flattens), validity (the share of samples that are arithmetic series) and
uniqueness (the share of distinct ones among these), beside plain temperatures and a control that
needs no guidance at all: a hot first step, then a cool temperature. Two rows let the samples of a
batch repel each other. Means over seeds.

    python benchmarks/sources.py            # trains the model once, a few minutes, then cached
    python benchmarks/sources.py --tied     # the same with one table for both ends
"""

import argparse
import dataclasses
import itertools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.experiments import series

SOURCES, TABLES = ("hidden", "expected", "predicted"), ("input", "output")
FORMS = {"literal": 1.0, "repulsion": 0.0}
ORDERS = {"random": sj.reveal.random, "confidence": sj.reveal.confidence}
BASELINE = (0.35, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0)
HOT = 2.0
"""The temperature of the control's first step."""


def measure(sampler: sj.Sampler, params: Any, samples: int, seeds: int) -> tuple[float, ...]:
    """(correlation, validity, uniqueness), means over seeds."""
    canvas = sj.canvas([[]], series.LENGTH, mask_id=series.MASK_ID, samples=samples)
    rows = []
    for seed in range(seeds):
        done, info = sj.run(sampler, params, jax.random.key(seed), canvas)
        signals = [float(jnp.mean(signal.correlation)) for signal in info.signals]
        rows.append((np.mean(signals) if signals else np.nan, *series.quality(done.tokens)))
    return tuple(np.mean(rows, axis=0))


def rows_of_the_table(build, temperatures, strength, bandwidth):
    """(name, sampler) for every line: temperatures, the control, and the variants of SAKE."""
    for temperature in BASELINE:
        yield f"temperature {temperature}", build(sj.identity(), temperature)
    for temperature in temperatures:
        control = sj.piecewise({0.0: HOT, 1 / series.LENGTH: temperature})
        yield f"control: T {HOT} once, then {temperature}", build(sj.identity(), control)
    variants = itertools.product(SOURCES, TABLES, FORMS, temperatures)
    for source, table, form, temperature in variants:
        guidance = sj.sake(
            strength, source=source, table=table, self_term=FORMS[form], bandwidth=bandwidth
        )
        yield f"{source} + {table}, {form}, T {temperature}", build(guidance, temperature)
    for temperature in temperatures:
        apart = sj.sake(strength, scope="batch", self_term=0.0, bandwidth=bandwidth)
        yield f"across samples: hidden, repulsion, T {temperature}", build(apart, temperature)
        exact = sj.sake(
            strength, scope="batch", source="predicted", gradient="exact", bandwidth=bandwidth
        )
        yield f"across samples: predicted, exact, T {temperature}", build(exact, temperature)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--bandwidth", default="median", help="a number, median or mean")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.35, 0.7, 1.0])
    parser.add_argument("--train-steps", type=int, default=series.TRAINING.steps)
    parser.add_argument("--tied", action="store_true")
    parser.add_argument("--cache", default=".cache/series", help="where the trained model is kept")
    options = parser.parse_args()
    try:
        bandwidth: Any = float(options.bandwidth)
    except ValueError:
        bandwidth = options.bandwidth
    training = dataclasses.replace(series.TRAINING, steps=options.train_steps)
    recipe = series.make_recipe(tied=options.tied, training=training)
    params = series.load_or_train(recipe, options.cache)
    denoiser, plan = series.make_denoiser(recipe), sj.blocks(series.LENGTH, series.LENGTH)

    def build(reveal, guidance, temperature):
        draw = sj.temperature(temperature)
        return sj.sampler(
            denoiser, plan, guidance=guidance, draw=draw, reveal=reveal, record="signal"
        )

    for order, reveal in ORDERS.items():
        print(f"\n### {order} order, {'tied' if options.tied else 'untied'} model\n")
        print("| | Corr[z, psi] | validity | uniqueness |\n|---|---|---|---|")
        lines = rows_of_the_table(
            partial(build, reveal), options.temperatures, options.strength, bandwidth
        )
        for name, sampler in lines:
            correlation, validity, unique = measure(sampler, params, options.samples, options.seeds)
            shown = "" if np.isnan(correlation) else f"{correlation:+.2f}"
            print(f"| {name} | {shown} | {validity:.3f} | {unique:.3f} |", flush=True)


if __name__ == "__main__":
    main()
