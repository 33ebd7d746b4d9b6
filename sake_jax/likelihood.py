"""How likely a text is under a diffusion language model.

It gives no log p(x), only a bound, estimated from draws of the noise. For masked diffusion of
n tokens

    -log p(x) ≤ ∫₀¹ 1/t E[ Σ_{i masked} -log p(xᵢ | x_t) ] dt    each token masked with chance t
              = E_k[ n/k E[ Σ_{i masked} -log p(xᵢ | x_k) ] ]    k of 1 .. n tokens masked

(MDLM, arXiv 2406.07524; LLaDA, arXiv 2502.09992). Models are trained with the first and scored
here with the second: it is the same number, but the first estimate has infinite variance, because
its rare draws near t = 0 weigh 1/t. Block diffusion (BD3LM, arXiv 2503.09573) is the same for each
block, given the clean blocks before it; for uniform noise see `losses.uniform_terms`, for networks
that predict scores `losses.score_entropy`.
"""

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from sake_jax.checks import number, require
from sake_jax.losses import (
    masked_terms,
    per_column,
    score_entropy,
    spread,
    surprise,
    uniform_terms,
)
from sake_jax.models import (
    LanguageModel,
    ModelConfig,
    NetworkDenoiser,
    NetworkInput,
    OwnModel,
    aligned_features,
    log_scores,
    noise_level,
)
from sake_jax.models.language import in_chunks
from sake_jax.noisy_texts import Texts, absorbed, scattered
from sake_jax.sharding import to_host
from sake_jax.typing import Key, Number, Params, PerPosition, PerRow

TokenLists = Sequence[Sequence[int] | np.ndarray] | np.ndarray
"""Token ids of texts, which may have different lengths."""


class Estimate(NamedTuple):
    """Means over the draws, one for each text."""

    value: np.ndarray
    error: np.ndarray
    """Standard errors as of independent draws; counts that are spread evenly vary less."""


def log_likelihood(
    lm: LanguageModel,
    prompts: TokenLists,
    answers: TokenLists,
    *,
    key: Key,
    draws: int = 128,
    batch: int = 32,
    scale: Number = 0.0,
) -> Estimate:
    """log p(answer | prompt) in nats, from below, as LLaDA's `get_log_likelihood` estimates it.

    A pair's draws come from the key and its own tokens: neither order nor company changes its
    estimate. All are padded to the longest, so pass pairs of like length together.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> encode = functools.partial(lm.tokenizer, add_special_tokens=False)
    >>> begin, *ends = encode(["once upon a", " time", " dog"])["input_ids"]
    >>> estimate = sj.log_likelihood(lm, [begin] * 2, ends, key=jax.random.key(0), draws=4)
    >>> bool(estimate.value[0] > estimate.value[1])  # "time" is likelier than "dog"
    True

    Args:
      lm: a diffusion model.
      prompts: token ids; [] for none.
      answers: token ids, one answer for each prompt.
      key: of the noise.
      draws: for each pair. The masked counts are spread evenly over all of them.
      batch: draws in one pass of the network, for its memory.
      scale: of classifier-free guidance, away from the same with the prompt masked.
    """
    scale = number("scale", scale, at_least=0)
    rule, remedy = "scale needs a mask token to hide the prompt", "leave it at 0"
    require(scale == 0 or lm.config.mask_id is not None, rule, scale, remedy)
    losses = _losses(lm, _texts(lm, prompts, answers), key, draws, batch, scale or None)
    return _estimate(-losses)


def bound(
    lm: LanguageModel,
    texts: TokenLists,
    *,
    key: Key,
    draws: int = 128,
    batch: int = 32,
) -> Estimate:
    """-log p(text) in nats per token, from above: the negative ELBO, for every family.

    exp of its mean over a corpus, weighted by length, is what papers report as perplexity.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> texts = lm.tokenizer(["once upon a time", "time a upon once"])["input_ids"]
    >>> estimate = sj.bound(lm, texts, key=jax.random.key(0), draws=4)
    >>> bool(estimate.value[0] < estimate.value[1])  # in nats per token
    True
    """
    packed = _texts(lm, [()] * len(texts), texts)
    losses = _losses(lm, packed, key, draws, batch)
    return _estimate(losses / packed.open.sum(axis=1, keepdims=True))


def log_likelihood_in_order(
    lm: LanguageModel, texts: TokenLists, order: Sequence[int] | np.ndarray, *, batch: int = 32
) -> np.ndarray:
    """log p of texts in nats, written one token after the other in this order.

    No bound but the likelihood itself, of a sampler that writes in this order (RADD's ar losses);
    one pass of the network for each token. For masked diffusion whose network does not look at the
    time, and texts of one length.

    >>> import sake_jax as sj
    >>> lm = sj.load("tinystories")
    >>> texts = lm.tokenizer(["once upon a time", "once upon a dog"])["input_ids"]
    >>> forward = sj.log_likelihood_in_order(lm, texts, range(len(texts[0])))
    >>> bool(forward[0] > forward[1])
    True

    Args:
      lm: a model of masked diffusion.
      texts: token ids.
      order: the columns, each once, as `reveal.ordered` takes them.
      batch: texts in one pass of the network.
    """
    order, size = np.asarray(order, np.int32), len(texts[0]) if len(texts) else 0
    rule, remedy = "an order must name every column once", "pass a permutation of 0 .. length - 1"
    require(sorted(order.tolist()) == list(range(size)), rule, order.tolist(), remedy)
    rule, remedy = "texts in an order must have one length", "score them apart"
    require(all(len(text) == size for text in texts), rule, [len(t) for t in texts], remedy)
    c = lm.config
    plain = c.mask_id is not None and not (c.network.time_conditioning or c.network.block_size)
    rule = "an order is for masked diffusion whose network does not look at the time"
    require(plain and not c.network.causal, rule, c.family, "use bound")
    packed = _texts(lm, [()] * len(texts), texts)

    def scores(items: np.ndarray) -> PerRow:
        return _in_order(c, lm.params, jax.tree.map(lambda x: x[items], packed.inputs), order)

    return _in_batches(scores, len(texts), batch)


@functools.partial(jax.jit, static_argnums=0)
def _in_order(config: ModelConfig, params: Params, inputs: NetworkInput, order: Array) -> PerRow:
    rank, denoiser = jnp.argsort(order), NetworkDenoiser(config.network)
    mask_id = config.mask_id
    assert mask_id is not None

    def log_p(total: PerRow, at: Array) -> tuple[PerRow, None]:
        noisy = jnp.where((rank >= at)[None], mask_id, inputs.tokens)
        features = aligned_features(config.network, params, inputs.replace(tokens=noisy))
        column = lambda x: jax.lax.dynamic_slice_in_dim(x, order[at], 1, axis=1)  # noqa: E731
        logits, own = denoiser.head(params, column(features)), column(inputs.tokens)
        noise, one = column(noisy), jnp.ones(own.shape, jnp.float32)
        more = {"predicts_mask": config.predicts_mask}
        terms = masked_terms(logits, own, noise, one, mask_id, **more)
        return total - terms[:, 0], None

    start = jnp.zeros(inputs.tokens.shape[0], jnp.float32)
    return jax.lax.scan(log_p, start, jnp.arange(order.size))[0]


def _texts(lm: LanguageModel, prompts: TokenLists, answers: TokenLists) -> Texts:
    c = lm.config
    rule, remedy = "likelihood bounds are for networks of this library", "convert it to one"
    require(not isinstance(lm, OwnModel), rule, c.family, remedy)
    rule = "likelihood bounds are for diffusion models"
    require(not c.network.causal, rule, c.family, "use lm.score for causal ones")
    rule = "likelihood bounds need a network that reads a text in one pass"
    require(not c.network.window, rule, c.family, "there is none for an encoder with a decoder")
    rule = "blocks have noise levels of their own: their network must not be conditioned on one"
    conditioned = c.network.block_size and c.network.time_conditioning
    require(not conditioned, rule, c.family, "score a model without time_conditioning")
    counts = len(prompts), len(answers)
    rule = "there must be at least one answer, and a prompt for each"
    require(counts[0] == counts[1] > 0, rule, counts, "an empty prompt is []")
    for answer in answers:
        require(len(answer) > 0, "an answer must have at least one token", answer, "leave it out")
    rows = [np.asarray([*prompt, *answer]) for prompt, answer in zip(prompts, answers, strict=True)]
    given = np.asarray([[len(prompt)] for prompt in prompts], np.int32)
    flat, column = np.concatenate(rows), np.arange(max(map(len, rows)))[None]
    rule = f"a text must not hold the mask token {c.mask_id}"
    require(c.mask_id is None or c.mask_id not in flat, rule, flat, "pass it whole: draws mask it")
    attend = column < np.asarray([[len(row)] for row in rows])
    tokens = np.zeros(attend.shape, flat.dtype)
    tokens[attend] = flat
    inputs = jax.tree.map(np.asarray, lm.network_input(tokens, attend))
    seeds = [
        zlib.crc32(np.append(own, row).astype(np.int32).tobytes())
        for own, row in zip(given, rows, strict=True)
    ]
    return Texts(inputs, attend & (column >= given), np.asarray(seeds, np.uint32))


def _losses(
    lm: LanguageModel, texts: Texts, key: Key, draws: int, batch: int, scale: Number = None
) -> np.ndarray:
    """(texts, draws) the loss of each draw in nats."""
    number("draws", draws, at_least=1)
    number("batch", batch, at_least=1)
    count, width = len(texts.seed), int(texts.open.sum(axis=1).max())

    def diffusion(items: np.ndarray) -> PerRow:
        some = jax.tree.map(lambda x: x[items // draws], texts)
        return _diffusion(lm.config, width, lm.params, some, key, items % draws, draws, scale)

    def reconstruction(items: np.ndarray) -> PerRow:
        some = jax.tree.map(lambda x: x[items], texts)
        return _reconstruction(lm.config, width, lm.params, some)

    losses = _in_batches(diffusion, count * draws, batch).reshape(count, draws)
    if lm.config.mask_id is None and not lm.config.network.scores:
        losses = losses + _in_batches(reconstruction, count, batch)[:, None]
    return losses


def _in_batches(function: Callable[[np.ndarray], Array], count: int, batch: int) -> np.ndarray:
    """Results for items 0 .. count - 1; the last item also fills up the last batch."""
    batch = min(batch, count)
    items = np.minimum(np.arange(count + -count % batch, dtype=np.int32), count - 1)
    parts = [function(some) for some in items.reshape(-1, batch)]
    return np.concatenate(to_host(parts))[:count].astype(np.float64)


def _estimate(losses: np.ndarray) -> Estimate:
    count, draws = losses.shape
    # One draw does not say how far the next would be.
    deviation = losses.std(axis=1, ddof=1) if draws > 1 else np.full(count, np.inf)
    return Estimate(losses.mean(axis=1), deviation / np.sqrt(draws))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _diffusion(
    config: ModelConfig,
    width: int,
    params: Params,
    texts: Texts,
    key: Key,
    index: Array,
    draws: Array | int,
    scale: Number,
) -> PerRow:
    """The loss of the `index`-th draw of each text, at most `width` of whose tokens are open."""
    mask_id = config.mask_id
    own = jax.vmap(jax.random.fold_in, (None, 0))(key, texts.seed)
    first, later = jnp.moveaxis(jax.vmap(jax.random.split)(own), 1, 0)
    starts = per_column(jax.random.uniform, first, texts.open.shape[1])
    draw = scattered if mask_id is None else absorbed
    keys = jax.vmap(jax.random.fold_in)(later, index)
    noisy = draw(config, texts, keys, spread(starts, index[:, None], draws))
    clean = texts.inputs.tokens if config.network.block_size else None
    sigma = noise_level(config.network, noisy.level)
    inputs = texts.inputs.replace(tokens=noisy.tokens, sigma=sigma, clean=clean)
    features = aligned_features(config.network, params, inputs)
    if scale is not None and mask_id is not None:
        prompt = texts.inputs.attend & ~texts.open
        hide = lambda tokens: jnp.where(prompt, mask_id, tokens)  # noqa: E731
        other = inputs.replace(tokens=hide(inputs.tokens), clean=jax.tree.map(hide, clean))
        # As mixed logits: the head is affine.
        away = features - aligned_features(config.network, params, other)
        features = features + scale * away

    def terms(logits, clean, noisy, time, sigma):
        if config.network.scores:
            return _score_terms(config, logits, clean, noisy, time, sigma)
        if mask_id is None:
            return uniform_terms(logits, clean, noisy, time)
        return masked_terms(logits, clean, noisy, time, mask_id, predicts_mask=config.predicts_mask)

    levels = jnp.broadcast_to(sigma[:, None], noisy.tokens.shape)
    columns = (texts.inputs.tokens, noisy.tokens, noisy.time, levels)
    return noisy.weight * _total(config, params, texts.open, width, terms, features, *columns)


def _score_terms(config: ModelConfig, logits, clean, noisy, time, sigma) -> PerPosition:
    """The loss of scores by the chance m = 1 - e^-σ that a token is noise: dσ = dm / (1 - m).

    With a mask token the weight of `masked_terms` is in its draws, 1/m of each masked token, and
    the network may have been told another m than its count of masks: both factors, (1 - m) / m of
    the true score and 1 / (1 - m), are taken out and 1/m of the count put in.
    """
    scores = log_scores(logits, noisy, sigma, scaled=config.network.scale_by_sigma)
    entropy = score_entropy(scores, clean, noisy, sigma, config.mask_id)
    if config.mask_id is None:
        return entropy * jnp.exp(sigma)
    return entropy * jnp.expm1(sigma) / time


@functools.partial(jax.jit, static_argnums=(0, 1))
def _reconstruction(config: ModelConfig, width: int, params: Params, texts: Texts) -> PerRow:
    """-log p(text | the text itself) of a network that is told that there is no noise."""
    inputs = texts.inputs.replace(sigma=jnp.zeros(texts.seed.shape, jnp.float32))
    features = aligned_features(config.network, params, inputs)
    return _total(config, params, texts.open, width, surprise, features, inputs.tokens)


def _total(config, params, open, width, terms, features, *columns) -> PerRow:
    """Sums terms over open columns; those alone, moved to the left, go through the head."""
    left = jnp.argsort(~open, axis=1, stable=True)[:, :width]
    rows = jnp.take_along_axis(features, left[..., None], axis=1)
    open, *columns = (jnp.take_along_axis(column, left, axis=1) for column in (open, *columns))
    head = functools.partial(NetworkDenoiser(config.network).head, params)
    losses = in_chunks(lambda rows, *columns: terms(head(rows), *columns), rows, *columns)
    return jnp.sum(jnp.where(open, losses, 0), axis=1)
