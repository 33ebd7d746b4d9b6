"""The same guidance with and without jit, on a device, and under pmap."""

import chex
import jax
import jax.numpy as jnp
from absl.testing import parameterized

import registry
import sake_jax as sj
from sake_jax.guidance import forces
from sake_jax.guidance.compose import chain, guide
from sake_jax.guidance.objectives import collision, renyi
from sake_jax.testing import toy_context, toy_params, toy_view
from scenes import scene
from traces import traced

GUIDANCES = ("chain", "temperature", "top_p", "classifier_free", "sake", "sake, exact")
VARIANTS = {"with_jit": True, "without_jit": True, "with_device": True, "with_pmap": True}


def guided(guidance, params, view):
    """Logits of the window after one step of guidance."""
    ctx, whole = toy_context(params, view), chain(guidance)
    return guide(whole, whole.init(ctx), ctx).logits


class GuidanceVariants(chex.TestCase):
    @chex.variants(**VARIANTS)
    @parameterized.parameters(*GUIDANCES)
    def test_a_guidance_is_the_same_however_it_is_run(self, name):
        guidance = registry.ENTRIES[name].guidance
        numbers, structure = jax.tree.flatten(guidance)
        numbers = [jnp.asarray(number) for number in numbers]

        def run(numbers, params, view):
            return guided(jax.tree.unflatten(structure, numbers), params, view)

        expected = jax.jit(run)(numbers, toy_params(1), toy_view(1))
        logits = self.variant(run)(numbers, toy_params(1), toy_view(1))
        chex.assert_trees_all_close(logits, expected, atol=2e-4)
        chex.assert_tree_all_finite(logits)

    @chex.variants(**VARIANTS)
    def test_the_gradient_is_the_closed_form(self):
        """Proposition 4.2, by `jax.grad` and by the paper's formula."""
        rows, peers = scene(1)

        def both(rows, peers):
            return forces.autodiff(collision, rows, peers), forces.closed_form(
                collision, rows, peers
            )

        by_grad, by_formula = self.variant(both)(rows, peers)
        chex.assert_trees_all_close(by_grad, by_formula, rtol=2e-4, atol=1e-6)

    @chex.variants(**VARIANTS)
    def test_the_entropy_of_order_two_has_the_same_direction(self):
        """∇H₂ = (2 / F) ∇D with F = ‖K ∘ K_attn‖²: rows move along the same lines."""
        rows, peers = scene(1)

        def both(rows, peers):
            entropy = forces.autodiff(renyi(2), rows, peers).direction
            return entropy, forces.closed_form(collision, rows, peers).direction

        entropy, formula = self.variant(both)(rows, peers)
        size = jnp.linalg.norm(entropy) * jnp.linalg.norm(formula)
        chex.assert_trees_all_close(jnp.sum(entropy * formula) / size, 1.0, atol=1e-3)


def test_other_numbers_are_not_traced_again():
    once = jax.jit(traced(guided))
    for strength in (0.5, 1.0, 2.0):
        once(sj.chain(sj.top_p(0.9), sj.sake(strength)), toy_params(0), toy_view(0))
