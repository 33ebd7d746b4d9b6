"""Whether a prompt and what follows it fit a model."""

import pytest

import sake_jax as sj
from conftest import GOLDENS
from sake_jax.generation import fit_prompt, prompt_context


@pytest.mark.parametrize(
    ("ids", "length", "truncate", "wanted"),
    [
        ([1, 2, 3], 5, False, [1, 2, 3]),
        ([1, 2, 3], 5, True, [1, 2, 3]),
        ([1, 2, 3], 7, True, [3]),
        ([], 8, False, []),
        ([], 8, True, []),
    ],
)
def test_prompts_that_fit_a_context_of_eight(ids, length, truncate, wanted):
    assert fit_prompt(ids, length, 8, truncate=truncate) == wanted


@pytest.mark.parametrize(("length", "truncate"), [(6, False), (8, True), (9, True)])
def test_prompts_that_do_not(length, truncate):
    message = f"mine and {length} columns must fit the model's context of 8, got 3; write less"
    with pytest.raises(ValueError, match=message):
        fit_prompt([1, 2, 3], length, 8, truncate=truncate, name="mine", remedy="write less")


def test_a_context_that_slides_has_no_end():
    assert prompt_context(sj.load(GOLDENS / "bd3lm")) is None
    assert fit_prompt([1] * 5000, 5000, None) == [1] * 5000
