"""What is to be run: a model, how it is sampled, and how many rows."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sake_jax as sj
from sake_jax.checks import one_of, require, whole
from sake_jax.conversion import int8_config
from sake_jax.generation import fit_prompt
from sake_jax.models import (
    LanguageModel,
    ModelConfig,
    abstract,
    exact_params,
    flatten_params,
    nest_params,
    param_axes,
    require_heads,
)
from sake_jax.planning.forms import Form
from sake_jax.sharding import Axes, padded, sharding
from sake_jax.typing import Params

DTYPES = ("bfloat16", "float32", "int8")


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to be planned, from shapes alone.

    >>> import sake_jax as sj
    >>> from sake_jax.conversion import model_config
    >>> Job(model_config("tinystories"), sj.Request(length=32), prompt=16).columns
    48
    """

    config: ModelConfig
    request: sj.Request
    batch: int = 1
    """Rows together."""
    samples: int = 1
    """Rows of one prompt."""
    prompt: int = 128
    """Columns."""
    dtype: str = "bfloat16"
    """Of the parameters; "int8" has kernels of it, and the rest in bfloat16."""
    form: Form | None = None
    """Changes the request's sampler, where that has no word for it."""

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, DTYPES)
        whole("prompt", self.prompt, at_least=0)
        rule = "batch must be a multiple of samples"
        fits = whole("batch", self.batch) % whole("samples", self.samples) == 0
        require(fits, rule, (self.batch, self.samples), "rows of one prompt stand together")
        fit_prompt(range(self.prompt), self.request.length, self.config.network.context)

    @property
    def columns(self) -> int:
        return self.prompt + self.request.length

    @property
    def network(self) -> Any:
        return int8_config(self.config).network if self.dtype == "int8" else self.config.network

    @property
    def leaves(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and dtypes of the parameters by path."""
        short = jnp.float32 if self.dtype == "float32" else jnp.bfloat16
        keep = exact_params(self.network)

        def leaf(path: str, own: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            kept = path in keep or own.dtype == jnp.int8
            return jax.ShapeDtypeStruct(own.shape, own.dtype if kept else short)

        return {p: leaf(p, shape) for p, shape in flatten_params(abstract(self.network)).items()}

    @property
    def parameters(self) -> int:
        """How many there are."""
        return sum(leaf.size for leaf in self.leaves.values())

    @property
    def active_parameters(self) -> int:
        """How many a token goes through: of experts, those that are chosen for it.

        >>> from sake_jax.conversion import model_config
        >>> job = Job(model_config("llada2.0-mini"), sj.Request(length=32))
        >>> f"{job.active_parameters / 1e9:.1f} of {job.parameters / 1e9:.1f} billion"
        '1.4 of 16.3 billion'
        """
        apart = {path for path, axes in self.axes.items() if "experts" in axes}
        inside = sum(leaf.size for path, leaf in self.leaves.items() if path in apart)
        if not inside:
            return self.parameters
        unused = self.network.experts - self.network.experts_per_token
        return self.parameters - inside * unused // self.network.experts

    def in_form(self, form: Form) -> "Job":
        """The same job in one of `forms.FORMS`, in place of the request's guidance."""
        return dataclasses.replace(self, request=self.request.unguided, form=form)

    def arguments(self, mesh: Mesh) -> tuple[sj.Sampler, Params, Any, sj.Canvas]:
        """What `run` is called with, as shapes on a mesh."""
        sizes = dict(mesh.shape)
        require_heads(self.network, sizes)
        rule = "the mesh's data axis must divide the batch"
        require(self.batch % sizes["data"] == 0, rule, sizes["data"], f"batch is {self.batch}")
        params = nest_params(
            {path: _placed(mesh, leaf, self.axes[path]) for path, leaf in self.leaves.items()}
        )
        sampler = self.sampler(params)
        rows = self.canvas()
        key = jax.eval_shape(lambda: jax.random.key(0))
        return sampler, params, _on(mesh, key), jax.tree.map(functools.partial(_on, mesh), rows)

    @functools.cached_property
    def axes(self) -> dict[str, Axes]:
        """Logical names of the parameters' axes by path."""
        return param_axes(self.network)

    def sampler(self, params: Params) -> sj.Sampler:
        config = dataclasses.replace(self.config, network=self.network)
        made = self.request.build(LanguageModel(config, params))
        return made if self.form is None else self.form(made)

    def canvas(self) -> sj.Canvas:
        """Rows with prompts of this many columns."""
        noise = self.config.mask_id
        prompts = np.zeros((self.batch // self.samples, self.prompt), np.int32).tolist()
        options = {"samples": self.samples, "align": self.network.block_size or 1}
        places = self.config.positions
        return sj.canvas(prompts, self.request.length, mask_id=noise, positions=places, **options)


def _placed(mesh: Mesh, leaf: jax.ShapeDtypeStruct, axes: Axes) -> jax.ShapeDtypeStruct:
    shape = padded(leaf.shape, axes, dict(mesh.shape))
    return jax.ShapeDtypeStruct(shape, leaf.dtype, sharding=sharding(mesh, shape, axes))


def _on(mesh: Mesh, leaf: Any) -> jax.ShapeDtypeStruct:
    """Rows of a batch over the data axis."""
    leaf = jax.typeof(leaf) if not hasattr(leaf, "shape") else leaf
    spec = PartitionSpec("data") if leaf.ndim else PartitionSpec()
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))
