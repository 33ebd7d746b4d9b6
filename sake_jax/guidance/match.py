"""Texts of a given form: a regular expression or a JSON Schema as a guidance."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from sake_jax.automata import byte_automaton, schema_expression, token_automaton, token_bytes
from sake_jax.automata.tokenwise import END, SKIP
from sake_jax.checks import require, shorten, whole
from sake_jax.core import LOWEST, Guidance
from sake_jax.guidance.conditioning import (
    NONE,
    Columns,
    Edges,
    Passes,
    both_passes,
    class_sums,
    class_tops,
    draw_path,
    of_tokens,
    states_after,
    states_before,
)
from sake_jax.guidance.select import first_largest
from sake_jax.typing import Logits
from sake_jax.view import Canvas, View

CUT = -1000.0
"""The log-probability of a token that a filter has cut, where nothing else matches."""


class Matches(Guidance):
    """See `matches`."""

    edges: Edges
    shortest: int = struct.field(pytree_node=False)
    """Tokens of the shortest text that matches."""
    expression: str = struct.field(pytree_node=False)

    def __repr__(self) -> str:
        return f"Matches({shorten(self.expression)})"

    @property
    def joint(self):
        return True

    def init(self, ctx):
        view = ctx.view
        room = view.tokens.shape[1] - view.canvas.generation_start
        rule = f"the canvas must have room for a text that matches, {self.shortest} tokens or more"
        require(room >= self.shortest, rule, room, "raise length, or shorten the expression")
        rows, width, edges = view.tokens.shape[0], view.width, self.edges
        return Passes(
            begin=jnp.zeros(rows, jnp.int32),
            after=jnp.zeros((width, edges.states, rows), jnp.float32),
            weight=jnp.zeros((width, edges.count, rows), jnp.float32),
            possible=jnp.zeros(rows, bool),
        )

    def check(self, canvas):
        """Refuses a canvas on which no text matches; for arrays that have values."""
        columns = self._columns(canvas)
        rows = np.concatenate([columns.free, columns.label], axis=1)
        for row in np.unique(rows, axis=0):
            free, label = np.split(row, 2)
            where = f"{int(free.sum())} open columns"
            given = int(((free == 0) & (label != SKIP)).sum())
            where += f" and {given} that are given" if given else ""
            rule = f"a text of the canvas must be able to match {shorten(self.expression)}"
            rule += f" ({self.shortest} tokens or more)"
            remedy = "raise or lower length, or change the expression or what is given"
            require(self._fits(free.astype(bool), label), rule, where, remedy)

    def _fits(self, free: np.ndarray, label: np.ndarray) -> bool:
        edges = jax.tree.map(np.asarray, self.edges)
        source = np.repeat(np.arange(edges.states), np.diff(edges.first))
        reached = np.zeros(edges.states, bool)
        reached[0] = True
        for is_free, own in zip(free, label, strict=True):
            if not is_free and own == SKIP:
                continue
            read = is_free | (edges.label == own)
            after = np.zeros_like(reached)
            after[edges.target[read & reached[source]]] = True
            reached = after
        return bool((reached & edges.accepts).any())

    def apply(self, logits, psi, state, ctx):
        edges, view = self._edges(logits), ctx.view
        columns = self._columns(view.canvas)
        total = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
        cut = logits <= LOWEST / 2
        # What the form leaves open is taken as given: a slope goes through a column's own logits,
        # not through the passes over all of them.
        chances = jax.lax.stop_gradient(jnp.where(cut, CUT, logits - total))
        mass = class_sums(chances.astype(jnp.float32), edges)
        start = view.window_start - view.canvas.generation_start
        weights = self._window(columns, view).weights(edges.count, mass)
        first = states_before(edges, columns, start)
        last = states_after(edges, columns, start + view.width)
        others = both_passes(edges, weights, first, last)
        told = others.weight.at[:, SKIP].set(NONE)
        top = jnp.max(told, axis=1, keepdims=True)
        told = told - jnp.where(top > NONE, top, 0)
        told = of_tokens(told, edges).astype(logits.dtype)
        guided = jnp.where(cut, CUT + total, logits) + told
        # What a filter has cut comes back only where all that is left was cut.
        gone = cut & (guided < jnp.max(guided, axis=-1, keepdims=True) + CUT / 2)
        guided = jnp.where((told > NONE) & ~gone, guided, LOWEST)
        acts = self._acts(columns, others, view)[..., None]
        return jnp.where(acts, guided, logits), others, None

    def posterior(self, log_q, logits, psi, state, ctx):
        edges, view = self._edges(logits), ctx.view
        fits = of_tokens(state.weight.at[:, SKIP].set(NONE), edges) > NONE
        fits = fits | _is_noise(view, log_q.shape[-1])
        acts = self._acts(self._columns(view.canvas), state, view)[..., None]
        return jnp.where(acts & ~fits, LOWEST, log_q)

    def draw_jointly(self, log_q, noise, logits, state, ctx):
        edges, view = self._edges(logits), ctx.view
        columns = self._columns(view.canvas)
        is_noise = _is_noise(view, log_q.shape[-1])
        log_q, noise = log_q.astype(jnp.float32), noise.astype(jnp.float32)
        kept = jnp.where((log_q > LOWEST / 2) & ~is_noise, log_q, NONE)
        floor = jnp.max(logits, axis=-1, keepdims=True) + CUT
        spare = jnp.where(is_noise, NONE, jnp.maximum(logits, floor)).astype(jnp.float32) + noise
        kept_noisy = kept + noise
        here = self._window(columns, view)
        tops = class_tops(kept_noisy, edges), class_tops(spare, edges)
        # Where no noise can stay, as most processes have it, nobody asks how likely a draw was.
        stay = jnp.any(is_noise & (log_q > LOWEST / 2))
        sums = jax.lax.cond(stay, lambda: class_sums(kept, edges), lambda: jnp.zeros_like(tops[0]))
        best, others, mass = (here.weights(edges.count, part) for part in (*tops, sums))
        path = draw_path(edges, state.begin, state.after, state.weight, best, others, mass)
        label, short, level = (part.T[..., None] for part in path)
        mine = edges.classes[None, None, :] == label
        drawn = first_largest(jnp.where(mine, jnp.where(short, spare, kept_noisy), NONE))
        alone = first_largest(log_q + noise)
        if view.mask_id is not None:
            # The token against noise that stays: of the same chances as if drawn alone.
            stays = jnp.max(jnp.where(is_noise, log_q + noise, NONE), axis=-1, keepdims=True)
            token = level + jax.nn.logsumexp(kept, axis=-1, keepdims=True)
            stays = jnp.where(short, alone[..., None] == view.mask_id, stays > token)[..., 0]
            drawn = jnp.where(stays, view.mask_id, drawn)
        return jnp.where(self._acts(columns, state, view), drawn, alone)

    def _edges(self, logits: Logits) -> Edges:
        """The automaton for a vocabulary of this size; what the tokenizer lacks is no text."""
        size, known = logits.shape[-1], self.edges.classes.shape[0]
        rule = "the tokenizer must be the model's: it must not have more tokens"
        require(known <= size, rule, (known, size), "pass lm.tokenizer")
        classes = jnp.pad(self.edges.classes, (0, size - known), constant_values=SKIP)
        return self.edges.replace(classes=classes)

    def _columns(self, canvas: Canvas) -> Columns:
        first = canvas.generation_start
        tokens, is_open, given, attend = (
            part[:, first:] for part in (canvas.tokens, canvas.open, canvas.prompt, canvas.attend)
        )
        # A process that draws again what is written draws all of it where there is no mask token;
        # where there is one, what is written stands.
        free = is_open if canvas.mask_id is None else is_open & (tokens == canvas.mask_id)
        known = jnp.clip(tokens, 0, self.edges.classes.shape[0] - 1)
        label = jnp.where(tokens == known, self.edges.classes[known], SKIP)
        # An end token that is given is no end: texts often begin with it.
        skipped = (given & (label == END)) if canvas.infill else given
        # A plan may hide what comes after its window; padding is neither open nor given.
        padding = ~(attend | is_open | given)
        label = jnp.where(skipped | padding, SKIP, label)
        return Columns(free, label)

    def _acts(self, columns: Columns, others: Passes, view: View) -> Array:
        """(B, W) where the form has a say: not where it has become impossible."""
        return self._window(columns, view).free & others.possible[:, None]

    def _window(self, columns: Columns, view: View) -> Columns:
        return columns.part(view.window_start - view.canvas.generation_start, view.width)


def _is_noise(view: View, size: int) -> Array:
    """(1, 1, V) the mask token, if there is one."""
    tokens = jnp.arange(size)[None, None, :]
    return jnp.zeros_like(tokens, bool) if view.mask_id is None else tokens == view.mask_id


def matches(
    form: str | Mapping[str, Any], tokenizer: Any, *, ends: Sequence[int] | None = None
) -> Matches:
    r"""Texts that match an expression or a JSON Schema, all of them, whatever else guides the draw.

    The expression becomes an automaton over classes of tokens. A forward and a backward pass over
    the columns give every open one its distribution given that the whole text matches,

        p(xᵢ = v | x matches) ∝ pᵢ(v) Σₛ αᵢ(s) βᵢ₊₁(δ(s, v)),

    which is what reveal rules, filters and later guidances see; then all columns of the window are
    drawn together. So any of the draws may be kept: a text that matches always remains. Open
    columns outside the window may hold anything, as long as some text matches.

    >>> import jax
    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> form = sj.matches(r"[a-z]+ and [a-z]+ are friends\.", lm.tokenizer)
    >>> sampler = sj.masked(lm, length=8, guidance=sj.chain(sj.sake(0.5), form))
    >>> sj.generate(lm, sampler, [""], key=jax.random.key(0)).texts[0][0].endswith(" are friends.")
    True

    Args:
      form: a regular expression in Python's dialect, without looks around and references back,
        for the whole text, as in `re.fullmatch`; or a JSON Schema as a dictionary.
      tokenizer: the model's, `lm.tokenizer`; or a list with the text of each token, None for those
        that are no text.
      ends: token ids that end a text; only they stand after it. By default the tokenizer's end
        token. Without any, a text fills the canvas.
    """
    expression = form if isinstance(form, str) else schema_expression(form)
    tokens = token_bytes(tokenizer)
    if ends is None:
        own = getattr(tokenizer, "eos_token_id", None)
        ends = [] if own is None else [own]
    ends = [whole("an end token", end, at_least=0, at_most=len(tokens) - 1) for end in ends]
    made = token_automaton(byte_automaton(expression), tokens, ends)
    arrays = {name: part for name, part in made._asdict().items() if isinstance(part, np.ndarray)}
    sizes = {name: getattr(made, name) for name in ("count", "bundles", "degree", "padded")}
    return Matches(Edges(**jax.tree.map(jnp.asarray, arrays), **sizes), made.shortest, expression)
