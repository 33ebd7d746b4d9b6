"""Particles on a lattice that are to fill a mixture of Gaussians (the paper's Figure 1).

A particle's token is its last move, one of 7 x 7; its cell is what the denoiser remembers. All
begin at one mode. A step draws a move y from

    softmax((log p(x + y) - log p(x)) / 2T + γ ψ_y),    ψ_y = y · g,

with g the closed form of SAKE's gradient over all particles: the library's own step, where a
particle is a position and the plane is the embedding.
"""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import sake_jax as sj
from sake_jax.typing import Key, Logits, Params

SIDE, EXTENT, REACH = 128, 12.0, 3
"""Cells of a side, the plane's half width, and how many cells a move goes at most."""
CELL = 2 * EXTENT / SIDE
MOVES = (2 * REACH + 1) ** 2
STAY = MOVES // 2
DEVIATION = 0.8
NEVER = -1e30
"""Half the rise of log p of a move that leaves the lattice: finite, for the sake of gradients."""
BANDWIDTH, ATTENTION_BANDWIDTH = 3.0, 20.0
LATE = 0.8
"""The part of a run after which guidance is off, or the temperature 1, in the late-off variants."""


def modes(name: str) -> np.ndarray:
    """(K, 2) centres of a mixture: "ring8" or "grid9"."""
    if name == "ring8":
        angle = np.arange(8) * np.pi / 4
        return 8 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    line = np.asarray([-6.0, 0.0, 6.0])
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


MIXTURES = ("ring8", "grid9")


def target(name: str, count: int, random: np.random.Generator) -> np.ndarray:
    """(N, 2) points of the mixture itself."""
    centres = modes(name)
    return centres[random.integers(0, len(centres), count)] + DEVIATION * random.normal(
        size=(count, 2)
    )


def middle(cells: np.ndarray) -> np.ndarray:
    """(..., 2) the coordinates of cells' middles."""
    return (np.stack([cells // SIDE, cells % SIDE], axis=-1) + 0.5) * CELL - EXTENT


def cell(points: np.ndarray) -> np.ndarray:
    """The cells that points lie in."""
    along = np.clip(np.floor((points + EXTENT) / CELL).astype(int), 0, SIDE - 1)
    return np.asarray(along[..., 0] * SIDE + along[..., 1])


def offsets() -> np.ndarray:
    """(MOVES, 2) cells that each move goes along both axes."""
    steps = np.arange(-REACH, REACH + 1)
    return np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)


def landscape(name: str) -> dict[str, Array]:
    """The denoiser's parameters: (cells, moves) half the rise of log p, and each move's cell."""
    points = middle(np.arange(SIDE * SIDE))
    apart = ((points[:, None] - modes(name)[None]) ** 2).sum(axis=-1)
    log_p = np.logaddexp.reduce(-apart / (2 * DEVIATION**2), axis=1)
    places = np.stack(np.divmod(np.arange(SIDE * SIDE), SIDE), axis=-1)[:, None] + offsets()[None]
    inside = ((places >= 0) & (places < SIDE)).all(axis=-1)
    to = np.where(inside, places[..., 0] * SIDE + places[..., 1], 0)
    rise = np.where(inside, (log_p[to] - log_p[:, None]) / 2, NEVER)
    return {"rise": jnp.asarray(rise, jnp.float32), "to": jnp.asarray(to, jnp.int32)}


class Lattice(sj.Node):
    """Where particles are, and how likely each move is. Its cache holds their cells."""

    affine: ClassVar[bool] = False

    def read(self, params: Params, view: sj.View, cache: Array) -> tuple[Array, Array]:
        cells = params["to"][cache, view.tokens]
        place = jnp.stack([cells // SIDE, cells % SIDE], axis=-1).astype(jnp.float32)
        return (place + 0.5) * CELL - EXTENT, cells

    def head(self, params: Params, rows: Array) -> Logits:
        along = jnp.floor((rows + EXTENT) / CELL).astype(jnp.int32)
        return params["rise"][along[..., 0] * SIDE + along[..., 1]]

    def tables(self, params: Params) -> sj.Tables:
        moves = jnp.asarray(offsets() * CELL, jnp.float32)
        return sj.Tables(moves, moves)


class Walk(sj.Node):
    """A draw is a move, and there is always another one."""

    revises: ClassVar[bool] = True
    decides: ClassVar[bool] = False

    def clean(self, logits: Logits, view: sj.View) -> Logits:
        return logits

    def log_q(self, logits: Logits, view: sj.View) -> Logits:
        return logits


class WalkSetting(NamedTuple):
    """One point of the grid; `late` is what holds after `LATE` of the steps."""

    temperature: float = 1.0
    strength: float = 0.0
    late_temperature: float | None = None
    late_strength: float | None = None

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        late = self.late_temperature if self.late_temperature is not None else self.temperature
        off = self.late_strength if self.late_strength is not None else self.strength
        return self.temperature, late, self.strength, off


def walk_sampler(numbers: Array, particles: int, steps: int, guided: bool) -> sj.Sampler:
    """The sampler of a setting's four numbers; without the kernel if not `guided`."""
    hot, late, strength, off = numbers
    parts: list[Any] = [sj.temperature(sj.piecewise({0.0: hot, LATE: late}))]
    if guided:
        signal = {"table": "output", "normalize": "none", "gradient": "closed_form"}
        widths = {"bandwidth": BANDWIDTH, "attention_bandwidth": ATTENTION_BANDWIDTH}
        parts.append(sj.sake(sj.piecewise({0.0: strength, LATE: off}), **signal, **widths))
    return sj.sampler(
        Lattice(),
        sj.descent(particles, steps, final="none"),
        guidance=sj.chain(*parts),
        process=Walk(),
        reveal=sj.reveal.everything,
    )


def walk(
    name: str, settings: Sequence[WalkSetting], keys: Key, particles: int = 2000, steps: int = 500
) -> np.ndarray:
    """(settings, particles, 2) where particles are in the end; all settings are one program.

    `keys` has one key for each setting.
    """
    guided = any(setting.strength for setting in settings)
    numbers = jnp.asarray([setting.numbers for setting in settings], jnp.float32)
    start = int(cell(modes(name)[0]))
    begin = jnp.full((1, particles), start, jnp.int32)
    moved = np.asarray(_moved(landscape(name), numbers, keys, begin, steps, guided))
    # Anywhere in the cell: a target has no lattice.
    places = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), (particles, 2)))
    return (np.divmod(start, SIDE) + moved + np.asarray(places(keys))) * CELL - EXTENT


@functools.partial(jax.jit, static_argnums=(4, 5))
@functools.partial(jax.vmap, in_axes=(None, 0, 0, None, None, None))
def _moved(
    params: Params, numbers: Array, key: Key, begin: Array, steps: int, guided: bool
) -> Array:
    """(particles, 2) how far each has gone along both axes; none of them leaves the lattice."""
    particles = begin.shape[1]
    sampler = walk_sampler(numbers, particles, steps, guided)
    canvas = sj.canvas([[]], particles, mask_id=STAY)
    _, _, moves = sj.run(sampler, params, key, canvas, begin, trajectory=True)
    return jnp.sum(jnp.asarray(offsets())[moves[:, 0]], axis=0)
