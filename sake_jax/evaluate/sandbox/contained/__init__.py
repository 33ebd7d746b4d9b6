"""What runs outside the caller's process: a server, keepers and programs.

Only the standard library is imported here. The server's interpreter starts this folder by path,
as a package of its own, since importing `sake_jax` would load JAX beside every program.
"""
