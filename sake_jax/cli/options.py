"""Options about running a model, which several commands have."""

import dataclasses
import os
import sys
from dataclasses import field
from pathlib import Path

import jax

import sake_jax as sj
from sake_jax import sharding
from sake_jax.checks import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Which model runs, where, and with which random numbers.

    How it is sampled is `sake_jax.Request`. Both are tables of options; see `sake_jax.cli.command`.
    """

    model: str = field(
        default="tinystories",
        metadata={"help": "'tinystories', a folder, a converted checkpoint, or a hub name."},
    )
    dtype: str | None = field(
        default=None, metadata={"help": "float32, bfloat16 or int8; as stored by default."}
    )
    mesh: str | None = field(
        default=None,
        metadata={"help": "Devices, such as 'tensor=8'; 'auto': as the model fits."},
    )
    seed: int = field(
        default=0, metadata={"help": "The same seed writes the same texts.", "min": 0}
    )
    batch: int = field(default=32, metadata={"help": "Texts that are written together.", "min": 1})
    chat: bool | None = field(
        default=None,
        metadata={
            "flags": ("--chat/--no-chat",),
            "help": "Use the model's chat template; if it has one.",
        },
    )
    special_tokens: bool = field(
        default=False,
        metadata={
            "flags": ("--special-tokens",),
            "help": "Read names of special tokens in a prompt, such as <|endoftext|>, as these "
            "tokens; by default they are text like any other.",
        },
    )
    distributed: bool = field(
        default=False,
        metadata={
            "flags": ("--distributed",),
            "help": "This is one process of several, which JAX finds; taken for granted where "
            "JAX_COORDINATOR_ADDRESS is set.",
        },
    )

    def connect(self) -> None:
        """Connects this process with the others of its run, if there are others."""
        if self.distributed or sharding.connection_requested():
            _keep_output_for_results()
            sharding.connect()

    def load(self) -> sj.LanguageModel:
        """The model on its devices; its compiled programs are kept for the next call."""
        remember_programs()
        return sj.load(self.model, mesh=self.mesh or None, dtype=self.dtype)


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """'8,1,32' as numbers in their order."""
    parts = [part.strip() for part in text.split(",")]
    right = all(part.isdecimal() and int(part) > 0 for part in parts)
    require(right, f"{option} must be whole numbers with commas", text, "such as 1,8,32")
    return tuple(sorted({int(part) for part in parts}))


def remember_programs() -> None:
    """Keeps compiled programs for the next call, where JAX_COMPILATION_CACHE_DIR says, or in the
    user's cache folder."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "sake_jax" / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _keep_output_for_results() -> None:
    """Keeps standard output for results: on CPUs JAX's network library writes lines there."""
    sys.stdout.flush()
    mine = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(mine, "w", buffering=1)
