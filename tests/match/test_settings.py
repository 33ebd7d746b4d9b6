"""Large arrays of whole numbers, as automata have them, in settings."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sake_jax as sj
from sake_jax.generation.settings import LARGEST, describe_settings, rebuild


@pytest.mark.parametrize("dtype", ["int32", "bool", "uint8"])
def test_packed_arrays_come_back(dtype):
    array = (jnp.arange(2 * LARGEST) % 7).astype(dtype).reshape(2, -1)
    described = json.loads(json.dumps(describe_settings(array)))
    assert list(described) == ["packed", "dtype", "shape"]
    back = rebuild(described)
    assert back.dtype == array.dtype
    assert jnp.array_equal(back, array)


def test_a_form_comes_back():
    form = sj.matches("a{1,800}", ["a" * length for length in range(1, 17)])
    described = describe_settings(form)
    assert "packed" in described["fields"]["edges"]["fields"]["label"]
    back = rebuild(json.loads(json.dumps(described)))
    assert back.expression == form.expression
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(form), strict=True):
        assert jnp.array_equal(ours, theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {"packed": "no base64!"},
        {"packed": "AAAA"},
        {"shape": [3]},
        {"shape": [LARGEST * LARGEST]},
        {"shape": [-1]},
        {"dtype": "object"},
    ],
)
def test_packed_arrays_that_were_changed_are_refused(changes):
    described = describe_settings(np.arange(2 * LARGEST)) | changes
    with pytest.raises(ValueError, match="a packed array in settings must be whole"):
        rebuild(described)


def test_large_arrays_of_other_numbers_belong_with_the_parameters():
    with pytest.raises(ValueError, match="large arrays belong with the parameters"):
        describe_settings(jnp.zeros(2 * LARGEST))
