"""`python -m sake_jax.cli`, where the console script is not on the path."""

from sake_jax.cli import main

if __name__ == "__main__":
    main()
