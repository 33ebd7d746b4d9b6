"""The paper's experiments, as functions."""
