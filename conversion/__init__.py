"""Checkpoints of other frameworks into parameters of `sake_jax.models`."""
