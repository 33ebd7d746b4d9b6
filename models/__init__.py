"""Denoisers: each family's network behind the `Denoiser` protocol."""
