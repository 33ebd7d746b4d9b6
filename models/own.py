"""A network of your own as a model: a function, an NNX module or a linen module."""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx, struct

from sake_jax.checks import require, whole
from sake_jax.core import Tables
from sake_jax.models.config import ModelConfig, TransformerConfig
from sake_jax.models.denoiser import one_later
from sake_jax.models.inputs import NetworkInput, NetworkOutput
from sake_jax.models.language import LanguageModel
from sake_jax.node import Node
from sake_jax.precision import product
from sake_jax.text import as_tokenizer
from sake_jax.typing import Features, Logits, Params, Rows
from sake_jax.view import View, asked_for, read_view

UNBOUNDED = 2**31 - 1
"""The context of a network that takes any number of columns."""


class OwnDenoiser(Node):
    """A network of your own as samplers see it; `sake_jax.wrap` makes it.

    >>> import sake_jax as sj
    >>> lm = sj.wrap(lambda params, tokens: params[tokens], jnp.eye(5), mask_id=4)
    >>> isinstance(lm.denoiser, OwnDenoiser), lm.denoiser.reads_time
    (True, False)
    """

    rows_of: Callable[..., Any] = struct.field(pytree_node=False)
    """`(model, tokens, ...) -> rows`, which may ask for more by name; see `sake_jax.wrap`."""
    head_of: Callable[..., Any] | None = struct.field(pytree_node=False, default=None)
    """`(model, rows) -> logits`; None: by the tables."""
    tables_of: Callable[..., Any] | None = struct.field(pytree_node=False, default=None)
    """`model -> tables`; None: the rows are logits."""
    module: Any = struct.field(pytree_node=False, default=None)
    """What parameters are put into: an NNX graph, a linen module; None: nothing, they are the
    model."""
    vocabulary: int = struct.field(pytree_node=False, default=0)
    shifted: bool = struct.field(pytree_node=False, default=False)
    affine: bool = struct.field(pytree_node=False, default=True)
    name: str = struct.field(pytree_node=False, default="own")

    @property
    def reads_time(self) -> bool:
        """Whether the network asks for the noise level."""
        return "time" in asked_for(self.rows_of)

    def model(self, params: Params) -> Any:
        """What the functions get first: the module with its parameters, or these alone."""
        if isinstance(self.module, nnx.GraphDef):
            return nnx.merge(self.module, params)
        return params if self.module is None else self.module.bind(params)

    def unaligned(self, params: Params, given: Any) -> Any:
        """The network's rows where it puts them."""
        return read_view(self.rows_of, given, self.model(params))

    def read(self, params: Params, view: View, cache: Any) -> tuple[Features, Any]:
        """Features of all columns, aligned with the token they predict."""
        rows = self.unaligned(params, view)
        return one_later(rows, view.attend) if self.shifted else rows, cache

    def head(self, params: Params, rows: Rows) -> Logits:
        """Logits of any rows."""
        if self.tables_of is None:
            return rows
        if self.head_of is not None:
            return self.head_of(self.model(params), rows)
        tables = self.tables(params)
        logits = product("bwd,vd->bwv", rows, tables.output)
        return (
            logits if tables.bias is None else logits + tables.bias.astype(logits.dtype)[None, None]
        )

    def tables(self, params: Params) -> Tables:
        """The vocabulary's embeddings; where rows are logits, each token is its own axis."""
        if self.tables_of is None:
            each = jnp.eye(self.vocabulary)
            return Tables(each, each)
        return _as_tables(self.tables_of(self.model(params)))


def _as_tables(given: Any) -> Tables:
    """Tables from an array for both ends, a pair, or tables; NNX variables count as arrays."""
    if isinstance(given, Tables):
        parts = (given.input, given.output, given.bias)
    else:
        parts = tuple(given) if isinstance(given, tuple | list) else (given, given)
    return Tables(*(part[...] if isinstance(part, nnx.Variable) else part for part in parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnConfig(TransformerConfig):
    """What is known of a network of your own, in the words of the other configs.

    Heads and layers are none of our business, and stand there as ones.

    >>> OwnConfig(V=12, D=8, context=64).classes
    0
    """

    N: int = 1
    H: int = 1
    K: int = 1
    F: int = 1
    head_dim: int = 2
    time_conditioning: bool = False  # type: ignore[misc], a choice here
    classes: int = 0  # type: ignore[misc]


@dataclasses.dataclass(frozen=True, repr=False)
class OwnModel(LanguageModel):
    """What `sake_jax.wrap` returns: a `LanguageModel` whose network is yours.

    >>> import sake_jax as sj
    >>> lm = sj.wrap(lambda params, tokens: params[tokens], jnp.eye(5), mask_id=4, name="copy")
    >>> isinstance(lm, OwnModel), lm.config.family, lm.logits([[1, 2]]).argmax(axis=-1).tolist()
    (True, 'copy', [[1, 2]])
    """

    own: OwnDenoiser | None = None
    given_tokenizer: Any = None

    @property
    def denoiser(self) -> Any:
        """The network as samplers use it."""
        return self.own

    @property
    def tokenizer(self) -> Any:
        """The tokenizer that it was wrapped with."""
        rule, remedy = "a model of your own needs a tokenizer for texts", "pass tokenizer= to wrap"
        none = self.given_tokenizer is None
        require(not none, rule, "none", f"{remedy}; token ids work without one")
        return self.given_tokenizer

    @property
    def dtype(self) -> str:
        """What the first table of numbers is stored in."""
        kinds = (jnp.result_type(leaf) for leaf in jax.tree.leaves(self.params))
        return next((kind.name for kind in kinds if jnp.issubdtype(kind, jnp.floating)), "float32")

    def _output(self, tokens, attend, sigma, cond, clean) -> NetworkOutput:
        rule, remedy = "clean is for block diffusion", "leave it out"
        require(clean is None, rule, self.config.family, remedy)
        inputs = self.network_input(tokens, attend)
        rule, remedy = "this network asks for the time", "pass it as sigma=, one number per row"
        require(sigma is not None or not self.config.network.time_conditioning, rule, None, remedy)
        level = None if sigma is None else jnp.asarray(sigma, jnp.float32)
        label = None if cond is None else jnp.asarray(cond, jnp.int32)
        rows = _unaligned(self.own, self.params, inputs.replace(sigma=level, cond=label))
        return NetworkOutput(rows, rows, None)


@jax.jit
def _unaligned(denoiser: Any, params: Params, inputs: NetworkInput) -> Features:
    named = {name: getattr(inputs, name) for name in ("tokens", "attend", "positions", "cond")}
    return denoiser.unaligned(params, types.SimpleNamespace(**named, time=inputs.sigma))


def wrap(
    model: Any,
    params: Params = None,
    *,
    mask_id: int | None,
    tables: Callable[[Any], Any] | None = None,
    read: Callable[..., Any] | None = None,
    head: Callable[[Any, Any], Any] | None = None,
    affine: bool | None = None,
    tokenizer: Any = None,
    name: str = "own",
    context: int | None = None,
    pad_id: int | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    classes: int = 0,
    shifted: bool = False,
    positions: str = "columns",
    sampler: str | None = None,
    predicts_mask: bool = True,
) -> OwnModel:
    """A network of your own as a model, for everything that takes one: `generate` with stop
    strings, `save` and `replay`, `stream_text`, the viewer, tasks and experiments.

    >>> import jax
    >>> import sake_jax as sj
    >>> table = jax.random.normal(jax.random.key(0), (12, 8))
    >>> def rows(params, tokens, attend):  # asks for `attend` by its name
    ...     embedded = jnp.where(attend[..., None], params["table"][tokens], 0)
    ...     return jnp.tanh(embedded + embedded.sum(axis=1, keepdims=True))
    >>> lm = sj.wrap(rows, {"table": table}, mask_id=11, tables=lambda params: params["table"])
    >>> sampler = sj.masked(lm, length=4, guidance=sj.sake(1.0))
    >>> sj.generate(lm, sampler, [[1, 2]], key=jax.random.key(0)).tokens.shape
    (1, 1, 4)

    A network gets `attend`, `positions`, `time` (the noise level) and `cond` (labels) if its
    parameters have these names. `sake_jax.testing.check_denoiser` holds it to our laws.

    Args:
      model: a function `(params, tokens, ...) -> (B, L, D)`, an NNX module with its parameters
        inside, as they are now, or a linen module. Without `tables`, what it gives are logits.
      params: of a function or a linen module (its variables).
      mask_id: of the token that stands for noise; None where noise is any token.
      tables: from the model to its table of tokens, (V, D): one array where both ends share it,
        (input, output), (input, output, bias), or `Tables`. Rows are then the head's input.
        Without, rows are logits and guidance works on these: well for a few thousand tokens,
        beyond that SAKE's own table is too large.
      read: of a module, what gives its rows, such as `MyModel.hidden`; a call by default.
      head: `(model, rows) -> logits` where it is not rows @ output.T + bias.
      affine: whether that `head` is affine nevertheless, so that guidance may pass through it.
      tokenizer: of transformers, or anything with `encode` and `decode`; None: token ids only.
      name: of the model, for settings and reports.
      context: columns that it takes, at most; any number by default.
      pad_id: what padding holds.
      bos_id: of the token that begins a text.
      eos_id: of the token that ends a text.
      classes: labels that it knows, for `cond`; one more stands for none.
      shifted: whether row j predicts token j + 1.
      positions: count "columns", or "tokens" from the first given one; see `canvas`.
      sampler: what it is usually drawn with: by default "masked", "ancestral" without a mask token.
      predicts_mask: whether it may predict the mask token; if not, that is never drawn.
    """
    own = _denoiser(model, read, tables, head, affine)
    if isinstance(model, nnx.Module):
        rule, remedy = "an NNX module has its parameters inside", "leave params out"
        require(params is None, rule, "params", remedy)
        _, params = nnx.split(model)
    else:
        rule, remedy = "a function or linen module needs its parameters", "pass params="
        require(params is not None, rule, None, remedy)
    own = own.replace(shifted=shifted, name=name)
    size, width = _sizes(own, params, classes)
    network = OwnConfig(
        V=size,
        D=width,
        context=UNBOUNDED if context is None else whole("context", context),
        shifted=shifted,
        time_conditioning=own.reads_time,
        classes=whole("classes", classes, at_least=0),
    )
    config = ModelConfig(
        family=name,
        network=network,
        mask_id=mask_id,
        pad_id=pad_id,
        bos_id=bos_id,
        eos_id=eos_id,
        positions=positions,
        sampler=sampler or ("ancestral" if mask_id is None else "masked"),
        predicts_mask=predicts_mask,
    )
    words = None if tokenizer is None else as_tokenizer(tokenizer)
    return OwnModel(config, params, own=own.replace(vocabulary=size), given_tokenizer=words)


def _denoiser(model: Any, read: Any, tables: Any, head: Any, affine: bool | None) -> OwnDenoiser:
    rule, remedy = "head needs tables, which say how rows and tokens meet", "pass tables="
    require(head is None or tables is not None, rule, "none", remedy)
    rule, remedy = "affine is about a head of your own", "leave it out: tables are an affine head"
    require(head is not None or affine is None, rule, affine, remedy)
    rule, remedy = "model must be a function or a module", "see sake_jax.wrap"
    require(callable(model), rule, model, remedy)
    module = None
    if isinstance(model, nnx.Module):
        module, _ = nnx.split(model)
    elif isinstance(model, linen.Module):
        module = model
    rule, remedy = "read chooses what a module gives", "pass that function as the model"
    require(read is None or module is not None, rule, read, remedy)
    rows_of = read or (model if module is None else type(model).__call__)
    return OwnDenoiser(rows_of, head, tables, module, affine=head is None or bool(affine))


def _sizes(own: OwnDenoiser, params: Params, classes: int) -> tuple[int, int]:
    """(V, D) by the shapes that the network gives."""
    one = jnp.ones((1, 2), jnp.int32)
    cond = jnp.zeros(1, jnp.int32) if classes else None
    named = {"tokens": one, "attend": one == 1, "positions": one, "cond": cond}
    given = types.SimpleNamespace(**named, time=jnp.ones(1))
    rows = jax.eval_shape(functools.partial(own.unaligned, given=given), params)
    rule, remedy = "a network must give (rows, columns, width)", "return one row for each column"
    require(getattr(rows, "ndim", 0) == 3 and rows.shape[:2] == (1, 2), rule, rows, remedy)
    if own.tables_of is None:
        return rows.shape[-1], rows.shape[-1]
    table = jax.eval_shape(own.tables, params).output
    rule = "the output table must be as wide as rows: (tokens, width)"
    remedy = "pass the head's input as rows, and transpose a kernel of (width, tokens)"
    right = table.ndim == 2 and table.shape[1] == rows.shape[-1]
    require(right, rule, (table.shape, rows.shape), remedy)
    return table.shape[0], rows.shape[-1]
