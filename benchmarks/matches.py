"""What `sj.matches` costs, against one evaluation of the head on the window.

At LLaDA's vocabulary, with a vocabulary of that size made of the built-in model's tokens. To
compile an expression is done once, in plain Python; a step is the forward and backward pass over
all columns, the marginals of the window and the joint draw. By the clock, interleaved, medians; the
head's time is measured at a smaller width and scaled to LLaDA's 4,096, with which it grows in
proportion.

    python benchmarks/matches.py [--window 32] [--length 256] [--repeats 5]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import sake_jax as sj
from sake_jax.automata import byte_automaton, schema_expression, token_automaton, token_bytes
from sake_jax.core import Context, Tables
from sake_jax.guidance.compose import draw_tokens, guide, last_word

VOCABULARY, WIDTH, MEASURED_WIDTH = 126_464, 4096, 512

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "job": {"type": "string", "maxLength": 30},
        "friends": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 5},
    },
    "required": ["name", "age", "job", "friends"],
}
FORMS = {
    "a date": r"[0-9]{4}-[01][0-9]-[0-3][0-9]",
    "sentences": r"(?:[A-Z][a-z]*(?: [a-z]+)*[.!?] ?)+",
    "JSON, a person": schema_expression(PERSON),
    "up to 250 characters": r"(?s).{0,250}",
    "three words of Unicode": r"\w+ \w+ \w+",
}


def vocabulary() -> list[bytes | None]:
    """LLaDA's number of tokens: the built-in model's, and pairs and triples of them."""
    own = [token for token in token_bytes(sj.load("tinystories").tokenizer) if token]
    random, made = np.random.default_rng(0), dict.fromkeys(own)
    while len(made) < VOCABULARY - 2:
        parts = random.integers(0, len(own), random.integers(2, 4))
        made[b"".join(own[at] for at in parts)] = None
    return [*made, None, None]  # the end token and the mask


def view_of(length: int, window: int) -> sj.View:
    canvas = sj.canvas([[]], length, mask_id=VOCABULARY - 1)
    return sj.blocks(length, length, window).view(canvas, jnp.int32(0))


def step(guidance: sj.Guidance, view: sj.View, logits: jax.Array, noise: jax.Array) -> jax.Array:
    """All that a guidance adds to a step after the head."""
    features, table = jnp.zeros((*view.tokens.shape, 1)), jnp.zeros((VOCABULARY, 1))
    ctx = Context(
        view=view,
        features=features,
        tables=Tables(table, table),
        head=lambda rows: logits,
        read=lambda other, cache: (features, cache),
        log_q=lambda logits: logits,
        fold=False,
    )
    composed = sj.chain(guidance)
    guided = guide(composed, composed.init(ctx), ctx)
    log_q = last_word(composed, guided, guided.logits, ctx)
    return draw_tokens(composed, guided, log_q, noise, ctx)


def head(rows: jax.Array, table: jax.Array) -> jax.Array:
    return jnp.einsum("bwd,vd->bwv", rows, table)


def median_seconds(functions: dict, repeats: int) -> dict[str, float]:
    """Interleaved, so that a busy moment hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(time.perf_counter() - begin)
    return {name: float(np.median(seconds[1:])) for name, seconds in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    tokens, view = vocabulary(), view_of(options.length, options.window)
    shape = (1, options.window, VOCABULARY)
    logits = 3 * jax.random.normal(jax.random.key(0), shape)
    noise = jax.random.gumbel(jax.random.key(1), shape)
    rows = jax.random.normal(jax.random.key(2), (1, options.window, MEASURED_WIDTH))
    table = jax.random.normal(jax.random.key(3), (VOCABULARY, MEASURED_WIDTH))
    run, evaluate = jax.jit(step), jax.jit(head)
    functions = {
        "head": lambda: evaluate(rows, table),
        "unguided": lambda: run(sj.identity(), view, logits, noise),
    }
    sizes = {}
    for name, expression in FORMS.items():
        begun = time.perf_counter()
        made = token_automaton(byte_automaton(expression), tokens, [VOCABULARY - 2])
        seconds = time.perf_counter() - begun
        sizes[name] = (len(made.accepts), made.count, len(made.label), seconds)
        form = sj.matches(expression, tokens, ends=[VOCABULARY - 2])
        functions[name] = lambda form=form: run(form, view, logits, noise)
    seconds = median_seconds(functions, options.repeats)
    whole_head = seconds["head"] * WIDTH / MEASURED_WIDTH
    print(
        f"V {VOCABULARY:,}, window {options.window} of {options.length} columns, one row;", end=" "
    )
    print(f"one head at D {WIDTH:,}: {whole_head * 1e3:.0f} ms, drawing alone", end=" ")
    print(f"{seconds['unguided'] * 1e3:.0f} ms\n")
    print("| form | states | classes | edges | compiled in | a step adds | in window heads |")
    print("|---|---|---|---|---|---|---|")
    for name, (states, classes, edges, once) in sizes.items():
        added = seconds[name] - seconds["unguided"]
        print(
            f"| {name} | {states:,} | {classes:,} | {edges:,} | {once:.1f} s "
            f"| {added * 1e3:.0f} ms | {added / whole_head:.2f} |"
        )


if __name__ == "__main__":
    main()
