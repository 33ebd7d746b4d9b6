"""The shape vocabulary: every axis letter the library uses, in one place.

==== ==============================  ==== ==============================
Q    prompts                         D    width of a feature row
M    samples of one prompt           V    vocabulary
B    rows of the batch, B = Q·M      N    layers
L    columns of the canvas           S    denoising steps
W    columns of the active window
==== ==============================  ==== ==============================

Annotations are documentation first; the tests also check them at run time
(jaxtyping with beartype), so a wrong one fails there and costs users nothing.
"""

from typing import Any, TypeAlias

from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

Tokens: TypeAlias = Int[Array, "B L"]
"""Token ids of the whole canvas."""

Flags: TypeAlias = Bool[Array, "B L"]
"""A yes or no for every column of the canvas."""

WindowFlags: TypeAlias = Bool[Array, "B W"]
"""A yes or no for every column of the window."""

WindowTokens: TypeAlias = Int[Array, "B W"]
"""Token ids of the window."""

Features: TypeAlias = Float[Array, "B L D"]
"""One feature row per column of the canvas: the input of the denoiser's head."""

Rows: TypeAlias = Float[Array, "B W D"]
"""Feature rows of the window alone."""

Logits: TypeAlias = Float[Array, "B W V"]
"""Scores over the vocabulary for the window alone."""

Table: TypeAlias = Float[Array, "V D"]
"""One row per token of the vocabulary."""

PerRow: TypeAlias = Float[Array, "B"]
"""One number per row of the batch."""

PerPosition: TypeAlias = Float[Array, "B W"]
"""One number per column of the window."""

Key: TypeAlias = Shaped[Array, "*K"]
"""JAX random keys."""

Leaf: TypeAlias = Any
"""An array in a pytree node; Any, because JAX also fills nodes with shapes and placeholders."""

Number: TypeAlias = Any
"""A Python number, a (traced) array of shape () or (B,), or a `Schedule`."""

Params: TypeAlias = Any
"""A pytree of model parameters."""

GuidanceState: TypeAlias = Any
"""A pytree that a guidance carries from step to step; its structure never changes."""
