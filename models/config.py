"""What a checkpoint says about its network, in our words. The letters are those of `typing`."""

import dataclasses
from typing import ClassVar, TypeAlias

from sake_jax.checks import one_of, require
from sake_jax.noise_levels import USUAL, NoiseLevels

SAMPLERS = ("masked", "ancestral", "block", "revising")
KINDS = ("sliding", "full")
"""Of layers: those that look back so far and no further, and those that see everything."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes that every network has."""

    V: int
    """Vocabulary."""
    D: int
    """Width."""
    N: int
    """Layers."""
    H: int
    """Query heads."""
    F: int
    """Hidden width of the MLP, or of one expert."""
    context: int
    """The longest sequence the network was trained for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(Shape):
    """LLaDA, LLaDA-MoE, Dream (bidirectional); Llama, Qwen, GPT-2 (causal).

    >>> config = TransformerConfig(V=64, D=16, N=2, H=2, K=2, head_dim=8, F=32, context=32)
    >>> config.causal  # it reads both ways
    False
    """

    K: int
    """Key and value heads; each serves H / K query heads."""
    head_dim: int
    causal: bool = False
    shifted: bool = False
    """Row j predicts token j + 1 though the network is bidirectional (Dream)."""
    norm: str = "rms"
    eps: float = 1e-5
    mlp: str = "gated"
    """"gated" is down(silu(gate x) * up x), "gelu" is down(gelu(up x))."""
    rope_theta: float | None = 10_000.0
    """None: positions are a learned table (GPT-2)."""
    rotary_dim: int = 0
    """How many entries of a head are turned by its position, the first ones; 0: all."""
    qkv_bias: bool = False
    bias: bool = False
    """Biases everywhere else: attention output, MLP, norms."""
    fused_qkv: bool = False
    qk_norm: bool = False
    """RMS norm on every head's query and key, before rotary."""
    tied: bool = False
    """The head is the input table."""
    experts: int = 0
    """0: a dense MLP."""
    experts_per_token: int = 0
    normalize_experts: bool = False
    """Whether the chosen experts' weights are scaled to sum to one."""
    expert_score: str = "softmax"
    """What makes weights of a router's logits: "softmax" over all experts, or "sigmoid" of each."""
    expert_bias: bool = False
    """Whether the choice of experts, not their weights, has a bias for each."""
    expert_groups: int = 1
    groups_per_token: int = 1
    """A token's experts come from this many of the groups, those whose two best are best."""
    expert_scale: float = 1.0
    """What the chosen experts' weights are multiplied with."""
    shared_F: int = 0
    """Hidden width of an expert that every token goes through; 0: none."""
    dense_layers: int = 0
    """The first so many layers have a dense MLP in place of experts."""
    dense_F: int = 0
    """Hidden width of theirs."""
    quantized: bool = False
    """int8 kernels with one scale per output channel; tables, norms and router stay as they are."""
    attention: str = "plain"
    """"plain" as the compiler makes it; "splash" by a kernel on TPUs, for long canvases."""
    block_size: int = 0
    """Block diffusion: a column sees its own block and those before. 0: it sees everything."""
    # What it has not, in the words of the other configs.
    activation: ClassVar[str] = "silu"
    fused_experts: ClassVar[bool] = False
    window: ClassVar[int] = 0
    time_conditioning: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    lookback: ClassVar[int] = 0
    scores: ClassVar[bool] = False
    scale_by_sigma: ClassVar[bool] = False
    noise: ClassVar[NoiseLevels] = USUAL

    def __post_init__(self):
        one_of("norm", self.norm, ("rms", "layer"))
        one_of("mlp", self.mlp, ("gated", "gelu"))
        one_of("attention", self.attention, ("plain", "splash"))
        rule, remedy = "splash attention is for networks that read both ways", 'use "plain"'
        all_alike = not self.causal and not self.block_size
        require(self.attention == "plain" or all_alike, rule, "one that does not", remedy)
        rule, remedy = "block diffusion reads both ways inside a block", "leave one of them out"
        require(not (self.causal and self.block_size), rule, "a causal network", remedy)
        rule = "H must be a multiple of K"
        require(self.H % self.K == 0, rule, (self.H, self.K), "check the head counts")
        rule = "experts_per_token must be between 1 and experts"
        fits = 1 <= self.experts_per_token <= self.experts if self.experts else True
        require(fits, rule, self.experts_per_token, "check the number of experts")
        one_of("expert_score", self.expert_score, ("softmax", "sigmoid"))
        rule = "experts must be in groups of one size, of which a token may use several"
        groups = (self.expert_groups, self.groups_per_token)
        fits = self.experts % groups[0] == 0 and 1 <= groups[1] <= groups[0]
        require(fits, rule, (self.experts, *groups), "check the numbers of experts and groups")
        rule, remedy = "dense_layers must be fewer than the layers, and have a width", "check both"
        fits = 0 <= self.dense_layers < self.N and bool(self.dense_layers) == bool(self.dense_F)
        require(fits, rule, (self.dense_layers, self.dense_F), remedy)
        rule = "rotary_dim must be even, and at most head_dim"
        fits = self.rotary_dim % 2 == 0 and 0 <= self.rotary_dim <= self.head_dim
        require(fits, rule, self.rotary_dim, "check partial_rotary_factor")
        rule = "head_dim must be even for rotary positions"
        require(self.head_dim % 2 == 0, rule, self.head_dim, "check hidden size and heads")

    @property
    def dense(self) -> "TransformerConfig":
        """The config of the first, dense layers."""
        without = {"experts": 0, "experts_per_token": 0, "expert_groups": 1, "groups_per_token": 1}
        none = {"shared_F": 0, "dense_layers": 0, "dense_F": 0}
        return dataclasses.replace(
            self, N=self.dense_layers, F=self.dense_F, expert_bias=False, **without, **none
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiTConfig(Shape):
    """MDLM, BD3LM, UDLM, SEDD: a transformer whose layers are modulated by the noise level; and
    RADD, the same without any modulation.

    >>> config = DiTConfig(V=64, D=16, N=2, H=2, F=64, context=32, cond_dim=8)
    >>> config.head_dim
    8
    """

    cond_dim: int
    """Width of the embedding of noise level and class. 0: there is none, and norms have a bias."""
    time_conditioning: bool = False
    """False: the network always sees noise level 0."""
    classes: int = 0
    """Labels it may be conditioned on; one more stands for "no label"."""
    block_size: int = 0
    """Block diffusion: a column sees its own block and those before. 0: it sees everything."""
    stored_limits: bool = False
    """Whether the checkpoint keeps the range of noise levels it was trained on."""
    noise: NoiseLevels = USUAL
    """How much noise there is at a time; a network that is conditioned on it is told σ(t)."""
    scores: bool = False
    """The outputs are log-scores, log p_t(y) - log p_t(x), not logits of clean tokens (SEDD)."""
    scale_by_sigma: bool = False
    """Log-scores are the outputs minus log(e^σ - 1) and log(V - 1)."""
    quantized: bool = False
    # What it has and has not, in the words of the other configs.
    window: ClassVar[int] = 0
    causal: ClassVar[bool] = False
    shifted: ClassVar[bool] = False
    tied: ClassVar[bool] = False
    fused_qkv: ClassVar[bool] = True
    qkv_bias: ClassVar[bool] = False
    qk_norm: ClassVar[bool] = False
    bias: ClassVar[bool] = False
    eps: ClassVar[float] = 1e-5
    attention: ClassVar[str] = "plain"

    @property
    def lookback(self) -> int:
        """Columns that a block looks back at; 0: all of them."""
        return self.context if self.block_size else 0

    @property
    def K(self) -> int:
        return self.H

    @property
    def head_dim(self) -> int:
        return self.D // self.H

    def __post_init__(self):
        rule = "D must be an even multiple of H"
        require(self.D % (2 * self.H) == 0, rule, (self.D, self.H), "check width and heads")
        rule = "context must be a multiple of block_size"
        fits = self.context % self.block_size == 0 if self.block_size else True
        require(fits, rule, (self.context, self.block_size), "check model_length")
        rule = "without cond_dim there is nothing to condition on time, labels or scores"
        plain = not (self.time_conditioning or self.classes or self.scores)
        require(self.cond_dim or plain, rule, self.cond_dim, "check cond_dim")
        rule, remedy = "scale_by_sigma is for log-scores", "set scores, or leave it out"
        require(self.scores or not self.scale_by_sigma, rule, self.scale_by_sigma, remedy)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(Shape):
    """DiffusionGemma: an encoder that reads text one way, and a decoder with the same parameters
    that reads a window after it both ways, and its own last prediction with it.

    >>> sizes = {"V": 64, "D": 16, "N": 2, "H": 2, "K": 2, "head_dim": 8, "F": 32, "context": 32}
    >>> full = {"full_K": 1, "full_head_dim": 16, "full_rotary_dim": 4}
    >>> more = {"experts": 4, "experts_per_token": 2, "dense_F": 24, "reach": 8, "window": 4}
    >>> config = EncoderDecoderConfig(kinds=("sliding", "full"), **sizes, **full, **more)
    >>> config.period, config.count("full")
    (2, 1)
    """

    kinds: tuple[str, ...]
    """Of each layer: "sliding" or "full"."""
    K: int
    """Key and value heads of the sliding layers."""
    head_dim: int
    """Of the sliding layers."""
    full_K: int
    full_head_dim: int
    """Of the full layers, whose values are their keys before norm and rotary."""
    rope_theta: float = 10_000.0
    full_theta: float = 1e6
    full_rotary_dim: int
    """How many entries of a full layer's head are turned by its position."""
    reach: int
    """Columns that a sliding layer sees, the own one included; the decoder's window sees all of
    itself and as many columns before it, less one."""
    dense_F: int
    """Hidden width of the MLP beside the experts, and of the one for the last prediction."""
    experts: int
    experts_per_token: int
    softcap: float = 30.0
    """Logits are softcap · tanh(x / softcap)."""
    eps: float = 1e-6
    window: int
    """Columns that the decoder was trained to write together."""
    quantized: bool = False
    # What it has and has not, in the words of the other configs.
    activation: ClassVar[str] = "gelu"
    fused_experts: ClassVar[bool] = True
    normalize_experts: ClassVar[bool] = True
    expert_score: ClassVar[str] = "softmax"
    expert_bias: ClassVar[bool] = False
    expert_groups: ClassVar[int] = 1
    groups_per_token: ClassVar[int] = 1
    expert_scale: ClassVar[float] = 1.0
    shared_F: ClassVar[int] = 0
    tied: ClassVar[bool] = True
    qk_norm: ClassVar[bool] = True
    fused_qkv: ClassVar[bool] = False
    qkv_bias: ClassVar[bool] = False
    bias: ClassVar[bool] = False
    attention: ClassVar[str] = "plain"
    causal: ClassVar[bool] = False
    shifted: ClassVar[bool] = False
    block_size: ClassVar[int] = 0
    lookback: ClassVar[int] = 0
    time_conditioning: ClassVar[bool] = False
    classes: ClassVar[int] = 0
    scores: ClassVar[bool] = False
    scale_by_sigma: ClassVar[bool] = False
    noise: ClassVar[NoiseLevels] = USUAL

    def __post_init__(self):
        rule, remedy = "kinds must name the kind of each layer", "check layer_types"
        require(len(self.kinds) == self.N, rule, (len(self.kinds), self.N), remedy)
        for kind in self.kinds:
            one_of("kind", kind, KINDS)
        rule = "H must be a multiple of the key heads of every layer"
        fits = self.H % self.K == 0 and self.H % self.full_K == 0
        require(fits, rule, (self.H, self.K, self.full_K), "check the head counts")
        rule = "experts_per_token must be between 1 and experts"
        fits = 1 <= self.experts_per_token <= self.experts
        require(fits, rule, self.experts_per_token, "check the number of experts")
        rule = "heads must be of even width, of which the full layers turn an even part"
        turned = (self.head_dim, self.full_head_dim, self.full_rotary_dim)
        fits = all(width % 2 == 0 for width in turned) and 0 <= turned[2] <= turned[1]
        require(fits, rule, turned, "check head_dim and partial_rotary_factor")

    @property
    def period(self) -> int:
        """After so many layers their kinds repeat; all of them where they do not."""
        sizes = (size for size in range(1, self.N + 1) if self.N % size == 0)
        return next(p for p in sizes if self.kinds == self.kinds[:p] * (self.N // p))

    def count(self, kind: str) -> int:
        """How many layers of a kind there are."""
        return self.kinds.count(kind)

    def of_kind(self, kind: str) -> "EncoderDecoderConfig":
        """The config whose `K` and `head_dim` are those of this kind's layers."""
        if kind == "sliding":
            return self
        return dataclasses.replace(self, K=self.full_K, head_dim=self.full_head_dim)


NetworkConfig: TypeAlias = TransformerConfig | DiTConfig | EncoderDecoderConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A network, the token ids its family gives a meaning to, and the family's facts.

    `sake_jax.conversion.family(name).model(network, ...)` makes one with its family's facts.

    >>> from sake_jax.conversion import model_config
    >>> config = model_config("mdlm-owt")
    >>> config.sampler, config.predicts_mask, config.network.V
    ('ancestral', False, 50258)
    """

    family: str
    """Its name: for people, and to find the rules of its checkpoints. Nothing else is decided
    by it, the fields below say what has to be known."""
    network: NetworkConfig
    mask_id: int | None = None
    """The token that stands for noise; None for families without one."""
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    positions: str = "columns"
    """"columns" counts from the canvas' left edge, "tokens" from the first attended token."""
    sampler: str = "masked"
    """What it is usually drawn with: "masked", "ancestral", "block" or "revising", see
    `sake_jax.samplers`."""
    order: str = "confidence"
    """In which order the positions of a block are usually written: "confidence" or "random"."""
    predicts_mask: bool = True
    """Whether the mask token is a candidate like any other where the likelihood of a text is
    computed. LLaDA's and Dream's references leave it a chance; MDLM and BD3LM never predict it."""
    tokenizer_class: str | None = None
    """The class of transformers that stands in where a checkpoint names a tokenizer class that
    comes as code beside it, which is never run."""

    def __post_init__(self):
        one_of("sampler", self.sampler, SAMPLERS)
        one_of("order", self.order, ("confidence", "random"))
        one_of("positions", self.positions, ("columns", "tokens"))
        inside = self.mask_id is None or 0 <= self.mask_id < self.network.V
        rule = f"mask_id must lie inside the vocabulary of {self.network.V}"
        require(inside, rule, self.mask_id, "check the checkpoint's config.json")
