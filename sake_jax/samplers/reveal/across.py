"""Orders that the samples of a prompt do not share."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from sake_jax.checks import number, require
from sake_jax.core import Reveal
from sake_jax.node import Node
from sake_jax.precision import safe_log
from sake_jax.samplers.reveal.tempered import Score, gumbel_of
from sake_jax.samplers.reveal.tools import Around, as_rule, chance, open_here, ranks, uniform
from sake_jax.samplers.together import by_prompt, shared_keys, uniforms
from sake_jax.typing import Key, Logits, Number, WindowFlags, WindowTokens
from sake_jax.view import View


class Stratified(Around):
    """See `stratified`.

    >>> import sake_jax as sj
    >>> stratified(sj.reveal.random).couples_samples
    True
    """

    rule: Any

    @property
    def couples_samples(self) -> bool:
        return True

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        is_open = open_here(view)
        begun = jnp.any(view.window(~view.open & view.attend & ~view.prompt), axis=1)
        # The samples of a prompt shuffle its open positions alike, and each takes its own share.
        place = ranks(uniforms(shared_keys(key, view), view.width), is_open)
        count = jnp.maximum(jnp.sum(is_open, axis=1, keepdims=True), 1)
        turn = (jnp.arange(len(place)) % view.samples)[:, None]
        mine = place % view.samples == turn % count
        allowed = is_open & (mine | begun[:, None])
        within = view.put(view.open, allowed)
        quota = jnp.minimum(view.quota, jnp.sum(allowed, axis=1))
        return self.rule(logits, drawn, view.replace(open=within, quota=quota), key)


def stratified(rule: Reveal) -> Stratified:
    """Samples of a prompt begin at different positions, then a rule goes on.

    The open positions of a block are dealt out to the samples at random, to all equally many; with
    more samples than positions, to each position equally many. A sample's first step in the block
    chooses by the rule among its own. With `reveal.random` each sample's order is distributed as
    without, only that they do not begin at the same place by chance.

    >>> import sake_jax as sj
    >>> rule = stratified(sj.reveal.confidence)
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=rule)
    >>> sampler.couples_samples
    True
    """
    return Stratified(as_rule(rule))


class Apart(Node):
    """See `apart`.

    >>> apart(2.0).strength
    2.0
    """

    strength: Number
    tau: Number = 0.0
    by: Score = struct.field(pytree_node=False, default=chance)

    @property
    def couples_samples(self) -> bool:
        return True

    def __call__(self, logits: Logits, drawn: WindowTokens, view: View, key: Key) -> WindowFlags:
        scores = safe_log(self.by(logits, drawn))
        scores = scores + view.number(self.tau, 2) * gumbel_of(uniform(key, view))
        is_open = open_here(view)
        written = view.window(~view.open & view.attend & ~view.prompt)
        share = view.number(self.strength, 2) / max(view.samples - 1, 1)
        share = jnp.broadcast_to(share, (scores.shape[0], 1))

        def choose(count: Array, sample: tuple[Array, ...]) -> tuple[Array, Array]:
            scores, is_open, quota, share = sample
            place = ranks(-(scores - share * count), is_open)
            chosen = is_open & (place < quota[:, None])
            return count + chosen.astype(count.dtype), chosen

        parts = (scores, is_open, view.quota, share)
        in_turn = jax.tree.map(lambda part: jnp.moveaxis(by_prompt(part, view), 1, 0), parts)
        begun = jnp.sum(by_prompt(written, view), axis=1, dtype=scores.dtype)
        _, chosen = jax.lax.scan(choose, begun, in_turn)
        return jnp.moveaxis(chosen, 0, 1).reshape(scores.shape)


def apart(strength: Number, *, tau: Number = 0.0, by: Score = chance) -> Apart:
    """The surest positions, less sure where other samples of the prompt have written or will.

    A position's log-confidence is lowered by `strength` times the share of the prompt's other
    samples that have written it already, or write it at this very step: samples choose one after
    the other. 0 is `tempered(tau)`.

    >>> import sake_jax as sj
    >>> rule = apart(sj.linear(4.0, 0.0), tau=0.1)
    >>> sampler = sj.masked(sj.testing.ToyDenoiser(), length=8, reveal=rule)

    Args:
      strength: in nats of log-confidence, where all others have written.
      tau: of the order's randomness; see `tempered`.
      by: how sure a position is; see `tempered`.
    """
    require(callable(by), "by must be a function (logits, drawn) -> scores", by, "pass one")
    strength = number("strength", strength, at_least=0)
    return Apart(strength, number("tau", tau, at_least=0), by)
