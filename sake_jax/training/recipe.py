"""What is trained, on what, and how: a TOML file."""

import dataclasses
import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, get_origin

from sake_jax.checks import number, one_of, require, spelling
from sake_jax.conversion import family
from sake_jax.files import write_atomically
from sake_jax.models import DiTConfig, ModelConfig, TransformerConfig

KINDS = ("llada", "causal", "mdlm", "bd3lm", "sedd", "radd")
POSITIONS = ("rotary", "learned")
NOISES = ("exact", "llada", "mdlm", "sedd")
OPTIMIZERS = ("muon", "adamw")
PRECISIONS = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class TextData:
    """Text files, of which a model learns to write any part."""

    train: str
    validation: str
    separator: str = "<|endoftext|>"
    """What stands between documents; one token, which also ends a text."""
    lower: bool = False
    """Whether text is turned to lower case."""
    vocabulary: int = 2048
    """Tokens of the byte-level BPE that is learned from the training text."""
    length: int = 128
    """Tokens of one training example."""


@dataclasses.dataclass(frozen=True)
class PairsData:
    """Problems made by code, of which a model learns to write the answers."""

    problems: str
    """Who makes them: a name such as "countdown", or "package.module:Class" for your own."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What the class is called with."""


Data = TextData | PairsData


@dataclasses.dataclass(frozen=True)
class Model:
    """The network."""

    kind: str = "llada"
    """"llada", "causal" (a Llama, for a judge), "mdlm", "bd3lm", "sedd" or "radd"."""
    layers: int = 4
    width: int = 256
    heads: int = 4
    mlp: int = 768
    context: int = 256
    """Columns a text may have when the model is used."""
    block: int = 0
    """Columns of a block, for "bd3lm"."""
    positions: str = "rotary"
    """"learned": a table of them. No family's layout has it, so that nothing is published."""
    tied: bool = False
    """Whether one table serves both ends."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The optimisation."""

    start: str = ""
    """The model that is trained further, with its tokenizer: what a recipe with the same [model]
    has published, by the name or folder that `sake_jax.load` takes. By default a new one."""
    steps: int = 10_000
    batch: int = 16
    noise: str = "exact"
    """How tokens are masked: "exact", k of n, k spread evenly over the batch, the least variance;
    "llada", each with its own chance; "mdlm", the same with its log-linear schedule's ends; "sedd",
    for that kind, whose loss is its score entropy. "exact" is also RADD's k_DCE."""
    optimizer: str = "muon"
    """"muon" for matrices (AdamW for the rest), or "adamw"."""
    rate: float = 0.01
    """The highest learning rate."""
    adam_rate: float = 0.003
    """Muon's for tables and vectors."""
    warmup: int = 100
    """Steps of a linear rise."""
    decay: float = 0.3
    """The share of the steps, at the end, in which the rate falls to 0."""
    weight_decay: float = 0.0
    clip: float = 1.0
    """The largest norm of a gradient."""
    ema: float = 0.999
    """Of the parameters that are kept; 0 keeps the last ones."""
    precision: str = "float32"
    """"bfloat16": the network computes in it, faster; losses and parameters stay float32."""
    seed: int = 0
    every: int = 100
    """Steps between lines of the log."""
    evaluate: int = 1000
    """Steps between bounds on the validation text."""
    save: int = 500
    """Steps between checkpoints."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything a run depends on."""

    name: str
    data: Data
    model: Model = Model()
    training: Training = Training()

    def __post_init__(self):
        one_of("model.kind", self.model.kind, KINDS)
        one_of("model.positions", self.model.positions, POSITIONS)
        one_of("training.noise", self.training.noise, NOISES)
        one_of("training.optimizer", self.training.optimizer, OPTIMIZERS)
        one_of("training.precision", self.training.precision, PRECISIONS)
        for part, names in (
            (self.model, ("layers", "width", "heads", "mlp")),
            (self.training, ("steps", "batch", "every", "evaluate", "save")),
        ):
            for name in names:
                number(name, getattr(part, name), at_least=1)
        number("ema", self.training.ema, at_least=0, at_most=0.999999)
        number("decay", self.training.decay, at_least=0, at_most=1)
        rule, remedy = 'training.noise = "sedd" belongs to model.kind = "sedd"', "set both or none"
        together = (self.model.kind == "sedd") == (self.training.noise == "sedd")
        require(together, rule, (self.model.kind, self.training.noise), remedy)
        if self.model.kind not in ("llada", "causal"):
            rule, remedy = f"model.mlp must be 4 width for {self.model.kind}", "set it"
            require(self.model.mlp == 4 * self.model.width, rule, self.model.mlp, remedy)
            rule = "model.positions and model.tied are for llada and causal"
            usual = self.model.positions == "rotary" and not self.model.tied
            require(usual, rule, self.model.kind, "leave them out")
        if self.model.kind != "bd3lm":
            rule = "model.block is for kind = 'bd3lm'"
            require(self.model.block == 0, rule, self.model.block, "leave it out")
        if isinstance(self.data, TextData):
            number("length", self.data.length, at_least=1)
            number("vocabulary", self.data.vocabulary, at_least=258)
            self.check_lengths(self.data.length)

    def check_lengths(self, length: int, answer_start: int = 0) -> None:
        """Refuses examples of so many tokens, learned from `answer_start` on, that do not fit."""
        fits = self.model.context >= length
        rule = f"model.context must be at least data.length = {length}"
        require(fits, rule, self.model.context, "raise it")
        if self.model.kind == "bd3lm":
            block = self.model.block
            whole = block > 0 and length % block == 0 and answer_start % block == 0
            rule = "model.block must divide data.length, and prompts, for bd3lm"
            require(whole, rule, block, "set it")

    def config(self, vocabulary: int) -> ModelConfig:
        """The network and its special tokens, as the checkpoint will describe them.

        Of the vocabulary's tokens the first ends a text, and the last is noise.
        """
        m, end_id, mask_id = self.model, 0, vocabulary - 1
        sizes: dict[str, Any] = {"V": vocabulary, "D": m.width, "N": m.layers}
        sizes |= {"H": m.heads, "F": m.mlp, "context": m.context}
        ids: dict[str, Any] = {"pad_id": end_id, "bos_id": end_id, "eos_id": end_id}
        if m.kind in ("llada", "causal"):
            rule = "model.width must be a multiple of model.heads"
            require(m.width % m.heads == 0, rule, (m.width, m.heads), "change one")
            network = TransformerConfig(
                **sizes,
                K=m.heads,
                head_dim=m.width // m.heads,
                eps=1e-5,
                rope_theta=10_000.0 if m.positions == "rotary" else None,
                tied=m.tied,
                causal=m.kind == "causal",
            )
            if m.kind == "causal":
                return family("llama").model(network, **ids)
            return family(m.kind).model(network, mask_id=mask_id, **ids)
        scores = m.kind == "sedd"
        network = DiTConfig(
            **sizes,
            cond_dim=0 if m.kind == "radd" else 128,
            block_size=m.block,
            stored_limits=m.kind == "bd3lm",
            time_conditioning=scores,
            scores=scores,
            scale_by_sigma=scores,
        )
        return family(m.kind).model(network, mask_id=mask_id)


def recipes() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    place = Path(str(resources.files("sake_jax"))) / "training" / "recipes"
    return {file.stem: file for file in sorted(place.glob("*.toml"))}


def read(path: str | Path, data: str | Path | None = None) -> Recipe:
    """A recipe from a TOML file, or one of `recipes` by its name.

    Text files are looked for in `data`, by default beside the recipe.
    """
    built_in = recipes().values()
    path = recipes().get(str(path), Path(path))
    rule = f"the recipe must be a TOML file, or one of {', '.join(recipes())}"
    require(path.is_file(), rule, str(path), "check the path")
    place = path.parent if data is None else Path(data)
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no TOML, no text, or nested without end
        raise ValueError(f"{path} must be TOML, got {error}; mend that line.") from error
    kind = PairsData if "problems" in written.get("data", {}) else TextData
    parts = {"data": kind, "model": Model, "training": Training}
    unknown = sorted(written.keys() - parts.keys() - {"name"})
    remedy = spelling(unknown, ("name", *parts)) if unknown else ""
    require(not unknown, f"{path} must have name, data, model, training", unknown, remedy)
    sections = {name: _section(kind, name, written.get(name, {})) for name, kind in parts.items()}
    if isinstance(sections["data"], TextData):
        sections["data"] = _resolve(sections["data"], place, own=data is None and path in built_in)
    beside = path.parent / sections["training"].start
    if sections["training"].start and beside.is_dir():
        sections["training"] = dataclasses.replace(
            sections["training"], start=str(beside.resolve())
        )
    return Recipe(name=written.get("name", path.stem), **sections)


def as_json(recipe: Recipe) -> dict[str, Any]:
    """A recipe as a run's folder keeps it."""
    return json.loads(json.dumps(dataclasses.asdict(recipe)))


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Writes what `read_recipe` reads."""
    write_atomically(path, json.dumps(dataclasses.asdict(recipe), indent=1))


def read_recipe(path: Path) -> Recipe:
    """The recipe that a run's folder keeps.

    Of an earlier version's some fields are missing: they had no other value than the default.
    """
    try:
        written = json.loads(path.read_text())
        kind = PairsData if "problems" in written["data"] else TextData
        parts = {"data": kind, "model": Model, "training": Training}
        return Recipe(
            written["name"], **{name: part(**written[name]) for name, part in parts.items()}
        )
    except (ValueError, TypeError, KeyError) as error:
        remedy = "choose another folder, or the version of sake-jax that wrote it"
        raise ValueError(f"{path} must hold a recipe, got {error}; {remedy}.") from error


def _resolve(data: TextData, place: Path, own: bool) -> TextData:
    """The same data with the whole paths of its files; `own` recipes come without them."""
    rule = f"this recipe needs the texts {data.train} and {data.validation}"
    require(not own, rule, "no folder", "name the folder that holds them with --data")
    train, validation = ((place / name).resolve() for name in (data.train, data.validation))
    return dataclasses.replace(data, train=str(train), validation=str(validation))


def _section(kind: Any, name: str, given: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    unknown = sorted(given.keys() - fields.keys())
    remedy = spelling(unknown, fields) if unknown else ""
    require(not unknown, f"[{name}] must have some of {', '.join(fields)}", unknown, remedy)
    missing = dataclasses.MISSING
    required = [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is missing and f.default_factory is missing
    ]
    missing = [field for field in required if field not in given]
    require(not missing, f"[{name}] must name {', '.join(required)}", missing, "add them")
    for key, value in given.items():
        wanted = get_origin(fields[key]) or fields[key]
        right = isinstance(value, wanted) or (wanted is float and isinstance(value, int))
        right = right and not (wanted is not bool and isinstance(value, bool))
        require(right, f"{name}.{key} must be a {wanted.__name__}", value, "mend it")
    return kind(**{k: float(v) if fields[k] is float else v for k, v in given.items()})
