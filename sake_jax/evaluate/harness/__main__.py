"""lm_eval's command line, which then knows the model `sake_jax`."""

from lm_eval.__main__ import cli_evaluate

import sake_jax.evaluate.harness  # noqa: F401

if __name__ == "__main__":
    cli_evaluate()
