"""The loop: steps, a log, bounds on held-out examples, checkpoints, and going on after a stop."""

import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from orbax.checkpoint import v1 as orbax

import sake_jax as sj
from sake_jax.checks import require
from sake_jax.conversion import load, locate
from sake_jax.files import lock, write_atomically
from sake_jax.journal import JsonLines, differences
from sake_jax.models import ModelConfig, exact_params, flatten_params, init, nest_params
from sake_jax.training import corpus
from sake_jax.training.objective import loss
from sake_jax.training.optimizer import falls_at, optimizer, rate
from sake_jax.training.pairs import PairsExamples, word_tokenizer
from sake_jax.training.publish import publish
from sake_jax.training.recipe import (
    PairsData,
    Recipe,
    Training,
    as_json,
    read_recipe,
    write_recipe,
)
from sake_jax.typing import Key, Leaf, Params, Tokens

DRAWS, ROWS = 4, 32
"""Draws of noise for each example of validation, and examples in one pass."""
KEPT = 2
"""Checkpoints that are kept."""
RECIPE, TOKENIZER, CHECKPOINTS = "recipe.json", "tokenizer.json", "checkpoints"


class TrainState(sj.Node):
    """All that a step changes."""

    step: Leaf
    params: Params
    ema: Params
    """The average that is published."""
    moments: Any
    """The optimizer's state."""
    total: Leaf
    """() losses since the last line of the log, summed."""


class Trainer:
    """Trains a recipe in a folder, or goes on with what is there.

    The folder holds recipe.json, tokenizer.json, log.jsonl, checkpoints/, and at the end model/.
    """

    def __init__(self, recipe: Recipe, folder: str | Path, mesh: Mesh | None = None):
        self.recipe, self.folder, self.mesh = recipe, Path(folder), mesh
        self.log = JsonLines(self.folder / "log.jsonl")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = lock(self.folder)
        planned = self._claim()
        self.tokenizer = self._tokenizer()
        self.examples = self._examples()
        recipe.check_lengths(self.examples.length, self.examples.answer_start)
        self.config = recipe.config(self.tokenizer.get_vocab_size())
        self.saved = orbax.training.Checkpointer(
            str((self.folder / CHECKPOINTS).resolve()),
            preservation_policy=orbax.training.preservation_policies.LatestN(KEPT),  # type: ignore
            cleanup_tmp_directories=True,
        )
        self.state = self._begin()
        self._extend(planned)

    def train(self, on_step: Callable[[int, float], None] = lambda step, loss: None) -> TrainState:
        """Runs to the recipe's last step. Interrupted, it saves what it has and lets go.

        `on_step` is called after every step with its number and loss. A KeyboardInterrupt that it
        raises loses nothing; one that comes in the middle of a step may cost what is newer than
        the last checkpoint.
        """
        t, key = self.recipe.training, jax.random.key(self.recipe.training.seed)
        at, clock = int(self.state.step), time.perf_counter()
        since = at
        try:
            while at < t.steps:
                # optax and gradients of bfloat16 products promote, which a user's strict mode
                # would refuse: also while jit lowers them, so not inside.
                with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                    tokens = self._placed(self.examples.batch(at), "data")
                    start = self.examples.answer_start
                    self.state, lost, norm = step(self.config, t, start, self.state, tokens, key)
                at, loss = at + 1, float(lost)
                if at % t.every == 0 or at == t.steps:
                    self._log(at, since, float(norm), time.perf_counter() - clock)
                    since = at
                if at % t.save == 0 or at == t.steps:
                    self.save()
                on_step(at, loss)  # may stop us: the step is whole, in the log too
                if since == at:  # neither bounds nor checkpoints count as training
                    clock = time.perf_counter()
        except KeyboardInterrupt:
            # The state may be half way: it was donated to the step that did not come back.
            if not any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state)):
                self.save()
            raise
        return self.state

    def save(self) -> None:
        """A checkpoint of the state as it is."""
        self.saved.save(int(self.state.step), self.state, overwrite=True)

    def publish(self, dtype: str = "float16") -> Path:
        """The averaged parameters as a model that `sake_jax.load` takes."""
        rule, positions = "published models have rotary positions", self.recipe.model.positions
        require(positions == "rotary", rule, positions, "use trainer.state.ema as it is")
        return publish(self.config, self.state.ema, self.tokenizer, self.folder / "model", dtype)

    def validate(self) -> float:
        """The loss on held-out examples in nats per token, always with the same noise."""
        examples, start = self.examples.held_out(), self.examples.answer_start
        rows = min(ROWS, len(examples))
        whole = len(examples) - len(examples) % rows
        parts = examples[:whole].reshape(-1, rows, self.examples.length)
        draws = 1 if self.config.network.causal else DRAWS
        losses = [
            evaluate(self.config, start, self.state.ema, jnp.asarray(part), jax.random.key(draw))
            for part in parts
            for draw in range(draws)
        ]
        return float(np.mean(jax.device_get(losses)))

    def _log(self, at: int, since: int, norm: float, seconds: float) -> None:
        t = self.recipe.training
        first, columns = (at - 1) // t.every * t.every, t.batch * self.examples.length
        line = {
            "step": at,
            "loss": float(self.state.total) / (at - first),
            "gradient": norm,
            "rate": np.asarray(rate(t, t.rate)(at - 1)).item(),
            "tokens": at * columns,
            "tokens_per_second": (at - since) * columns / seconds,
        }
        self.state = self.state.replace(total=jnp.zeros_like(self.state.total))
        if at % t.evaluate == 0 or at == t.steps:
            nats = self.validate()
            line["validation"] = nats
            if self.examples.bytes_per_token is not None:
                line["bits_per_byte"] = float(nats / np.log(2) / self.examples.bytes_per_token)
        self.log.append([line])

    def _claim(self) -> int:
        """Writes the recipe into a new folder; returns the steps it is, or was, planned for.

        A folder with another recipe is refused, unless only the number of steps differs.
        """
        path, mine = self.folder / RECIPE, self.recipe
        rule = f"{self.folder} must be new or hold a run of the same recipe"
        remedy = "choose another folder"
        if not path.exists():
            begun = self.log.path.exists() or (self.folder / CHECKPOINTS).exists()
            require(not begun, rule, f"a run without {RECIPE}", remedy)
            write_recipe(mine, path)
            return mine.training.steps
        theirs = read_recipe(path)
        planned, training = theirs.training.steps, theirs.training
        same = dataclasses.replace(training, steps=mine.training.steps)
        changed = differences(as_json(dataclasses.replace(theirs, training=same)), as_json(mine))
        require(not changed, rule, f"another {', '.join(changed)}", remedy)
        return planned

    def _extend(self, planned: int) -> None:
        """Another number of steps, as long as both plans are the same so far."""
        t, at = self.recipe.training, int(self.state.step)
        if planned == t.steps:
            return
        before = dataclasses.replace(t, steps=planned)
        last = min(falls_at(before), falls_at(t))
        rule = f"training.steps may change before the rate falls, after step {last}"
        require(at <= last, rule, f"step {at}", f"keep steps = {planned}, or begin anew")
        write_recipe(self.recipe, self.folder / RECIPE)

    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        path = self.folder / TOKENIZER
        if not path.exists():
            write_atomically(path, self._first_tokenizer().to_str(pretty=True))
        return Tokenizer.from_file(str(path))

    def _first_tokenizer(self) -> Any:
        """That of the model to start from, or one made for the data."""
        from tokenizers import Tokenizer

        data, start = self.recipe.data, self.recipe.training.start
        if start:
            return Tokenizer.from_file(str(locate(start) / TOKENIZER))
        return word_tokenizer(data) if isinstance(data, PairsData) else corpus.learn_tokenizer(data)

    def _examples(self) -> corpus.TextExamples | PairsExamples:
        data, training = self.recipe.data, self.recipe.training
        if isinstance(data, PairsData):
            return PairsExamples(data, training, self.tokenizer)
        return corpus.TextExamples(data, training, self.tokenizer)

    def _begin(self) -> TrainState:
        state = self._placed(initial(self.config, self.recipe.training))
        if self.saved.latest is not None:
            like = lambda x: jax.ShapeDtypeStruct(  # noqa: E731
                x.shape, x.dtype, sharding=x.sharding
            )
            target = jax.tree.map(like, state)
            state = self._placed(self.saved.load(self.saved.latest, target))
        self._cut_log(int(state.step))
        return state

    def _cut_log(self, step: int) -> None:
        """Takes away what was logged after the checkpoint: it will be logged again."""
        self.log.keep(sum(line["step"] <= step for line in self.log.read()))

    def _placed(self, tree: Any, *axes: str) -> Any:
        """On the mesh: a copy on every device, or cut along an axis of it."""
        if self.mesh is None:
            return tree
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec(*axes)))


def initial(config: ModelConfig, training: Training) -> TrainState:
    """The state before the first step."""
    params = published(config, training.start) if training.start else fresh(config, training.seed)
    moments = optimizer(training, params).init(params)
    # A copy: both are donated to the same step.
    ema = jax.tree.map(jnp.copy, params)
    return TrainState(jnp.int32(0), params, ema, moments, jnp.float32(0))


def published(config: ModelConfig, start: str) -> Params:
    """The parameters of a model that was published, in float32."""
    lm = load(start, dtype="float32")
    changed = differences(dataclasses.asdict(lm.config), dataclasses.asdict(config))
    rule = f"training.start = {start!r} must be a model like the recipe's"
    require(not changed, rule, f"another {', '.join(changed)}", "change [model] or start")
    return lm.params


def fresh(config: ModelConfig, seed: int) -> Params:
    """New parameters; the head begins small, so that all tokens are about equally likely."""
    params = init(config.network, jax.random.key(seed))
    # A table that is also the input has positions beside it, which must not drown it.
    small = ("input", "places") if config.network.tied else ("output",)
    for name in small:
        if name in params:
            params[name]["rows"] = params[name]["rows"] / config.network.D**0.5
    return params


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=3)
def step(
    config: ModelConfig,
    training: Training,
    answer_start: int,
    state: TrainState,
    tokens: Tokens,
    key: Key,
) -> tuple[TrainState, Array, Array]:
    """One step; the noise comes from the run's key and the step's number."""
    noise = jax.random.fold_in(jax.random.fold_in(key, state.step), 1)
    frozen = exact_params(config.network)

    def lossy(params: Params) -> Array:
        rounded = _rounded(params, jnp.dtype(training.precision), frozen)
        return loss(config, training.noise, rounded, tokens, noise, answer_start)

    lost, gradient = jax.value_and_grad(lossy)(state.params)
    gradient = _without(gradient, frozen)
    chosen = optimizer(training, state.params)
    moved, moments = chosen.update(gradient, state.moments, state.params)
    params = optax.apply_updates(state.params, _without(moved, frozen))
    # Early averages would remember the beginning for too long.
    count = state.step.astype(jnp.float32)
    keep = jnp.minimum(training.ema, (1 + count) / (10 + count))
    ema = jax.tree.map(lambda old, new: keep * old + (1 - keep) * new, state.ema, params)
    state = TrainState(state.step + 1, params, ema, moments, state.total + lost)
    return state, lost, optax.tree.norm(gradient)


@functools.partial(jax.jit, static_argnums=(0, 1))
def evaluate(
    config: ModelConfig, answer_start: int, params: Params, tokens: Tokens, key: Key
) -> Array:
    """The loss of a batch of examples, with the least variance."""
    return loss(config, "exact", params, tokens, key, answer_start)


def _without(tree: Params, frozen: frozenset[str]) -> Params:
    """Zeros for parameters that are not trained."""
    return _others(tree, frozen, lambda x: x, jnp.zeros_like)


def _rounded(tree: Params, dtype: jnp.dtype, kept: frozenset[str]) -> Params:
    """All parameters in a dtype, but those that are never rounded."""
    return _others(tree, kept, lambda x: x.astype(dtype), lambda x: x)


def _others(
    tree: Params,
    some: frozenset[str],
    change: Callable[[Array], Array],
    change_some: Callable[[Array], Array],
) -> Params:
    leaves = flatten_params(tree).items()
    return nest_params({n: change_some(x) if n in some else change(x) for n, x in leaves})
