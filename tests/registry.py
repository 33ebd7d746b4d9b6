"""Every public guidance, with values that are not the defaults; the laws run over this list.

A builder that is missing here fails `test_laws.test_every_builder_is_registered`.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

import sake_jax as sj
from sake_jax.guidance.objectives import collision, log_determinant, renyi, von_neumann


@dataclasses.dataclass(frozen=True)
class Entry:
    builder: str
    guidance: sj.Guidance
    permute: Callable | None = None


def softcap(logits, ctx, ceiling):
    return ceiling * jnp.tanh((logits - jnp.max(logits, axis=-1, keepdims=True)) / ceiling)


def classifier(params, one_hot, view):
    """Two labels told apart by the mean of one number per token; padding has no say."""
    weight = view.attend.astype(one_hot.dtype)
    total = jnp.einsum("blv,v,bl->b", one_hot, params, weight)
    return -jnp.logaddexp(0.0, -jnp.tanh(total / jnp.maximum(jnp.sum(weight, axis=1), 1)))


def rename_ids(guidance, new_id):
    return sj.forbid(jnp.asarray(new_id)[guidance.ids])


def rename_protected(guidance, new_id):
    return guidance.replace(protect=jnp.asarray(new_id)[guidance.protect])


def rename_params(guidance, new_id):
    order = jnp.argsort(jnp.asarray(new_id))
    return guidance.replace(params=guidance.params[order])


def rename_classes(guidance, new_id):
    edges = guidance.edges
    members = jnp.where(edges.members < 0, -1, jnp.asarray(new_id)[edges.members])
    changes = {"classes": edges.classes[jnp.argsort(new_id)], "members": members}
    return guidance.replace(edges=edges.replace(**changes))


LETTERS = [*"abcdefghijklmnop", None]
"""A text for each token of the toy vocabulary; the last is the mask."""
WEIGHTS = jnp.linspace(-2.0, 2.0, 17)

ENTRIES: dict[str, Entry] = {
    "identity": Entry("identity", sj.identity()),
    "chain": Entry("chain", sj.chain(sj.top_p(0.95), sj.sake(1.0), sj.temperature(0.8))),
    "chain, folded": Entry("chain", sj.chain(sj.sake(1.0), sj.sake(0.5, self_term=0.0))),
    "credit": Entry("credit", sj.credit(2.0, decay=0.5, power=0.5)),
    "capped": Entry("capped", sj.capped(sj.odd(8.0), 0.1)),
    "when": Entry("when", sj.when(sj.temperature(0.5), start=0.05, end=0.95)),
    "when, pushed": Entry("when", sj.when(sj.sake(2.0, kl_budget=0.3), end=0.95)),
    "temperature": Entry("temperature", sj.temperature(0.7)),
    "temperature, zero": Entry("temperature", sj.temperature(0.0)),
    "temperature, scheduled": Entry("temperature", sj.temperature(sj.linear(2.0, 0.1))),
    "cooling": Entry("cooling", sj.cooling(1.3, 0.2)),
    "cooling, scheduled": Entry("cooling", sj.cooling(sj.linear(2.0, 0.5), 0.0)),
    "top_k": Entry("top_k", sj.top_k(4)),
    "top_k, scheduled": Entry("top_k", sj.top_k(sj.piecewise({0.0: 5.0, 0.5: 2.0}))),
    "top_p": Entry("top_p", sj.top_p(0.8)),
    "min_p": Entry("min_p", sj.min_p(0.1)),
    "forbid": Entry("forbid", sj.forbid([2, 5]), permute=rename_ids),
    "matches": Entry("matches", sj.matches("[a-p]*[a-d]", LETTERS), permute=rename_classes),
    "matches, ends": Entry(
        "matches", sj.matches("[a-o]*", LETTERS, ends=[15]), permute=rename_classes
    ),
    "transform": Entry("transform", sj.transform(softcap, 5.0)),
    "classifier_free": Entry("classifier_free", sj.classifier_free(1.5)),
    "classifier_free, label": Entry("classifier_free", sj.classifier_free(0.5, sj.with_label(3))),
    "classifier_free, posterior": Entry(
        "classifier_free", sj.classifier_free(1.5, form="posterior")
    ),
    "adaptive_free": Entry("adaptive_free", sj.adaptive_free(1.0, share=0.5)),
    "classifier_based": Entry(
        "classifier_based",
        sj.classifier_based(classifier, WEIGHTS, 2.0),
        permute=rename_params,
    ),
    "classifier_based, exact": Entry(
        "classifier_based",
        sj.classifier_based(classifier, WEIGHTS, 2.0, method="exact"),
        permute=rename_params,
    ),
    "paper_sake": Entry("paper_sake", sj.paper_sake(0.7, 3.0, sj.vanishing(20))),
    "sake": Entry("sake", sj.sake(sj.cosine(1.5, 0.0))),
    "sake, closed form": Entry("sake", sj.sake(1.0, gradient="closed_form", normalize="none")),
    "sake, exact": Entry("sake", sj.sake(1.0, gradient="exact", source="predicted")),
    "sake, exact, raw": Entry(
        "sake", sj.sake(1.0, gradient="exact", normalize="none", table="input", bandwidth=2.0)
    ),
    "sake, expected": Entry("sake", sj.sake(1.0, source="expected", self_term=0.0)),
    "sake, predicted": Entry("sake", sj.sake(1.0, source="predicted", table="input")),
    "sake, input": Entry("sake", sj.sake(1.0, source="input", bandwidth="mean")),
    "sake, batch": Entry("sake", sj.sake(1.0, scope="batch")),
    "sake, both": Entry("sake", sj.sake(1.0, scope="both", attention_bandwidth=3.0)),
    "sake, both exact": Entry(
        "sake", sj.sake(1.0, scope="both", gradient="exact", source="predicted")
    ),
    "sake, budget": Entry("sake", sj.sake(5.0, kl_budget=0.1)),
    "diversity, collision": Entry("diversity", sj.diversity(collision, 1.0)),
    "diversity, renyi 2": Entry("diversity", sj.diversity(renyi(2), 1.0)),
    "diversity, renyi 3": Entry("diversity", sj.diversity(renyi(3), 1.0, normalize="none")),
    # The slope of λ^0.5 enlarges float32's rounding at small eigenvalues: pushed by 1.0, one seed
    # in forty breaks a law's tolerance; by 0.25, none of two hundred comes near it.
    "diversity, renyi 0.5": Entry("diversity", sj.diversity(renyi(0.5), 0.25, source="expected")),
    "diversity, von Neumann": Entry("diversity", sj.diversity(von_neumann, 1.0)),
    "diversity, log determinant": Entry(
        "diversity", sj.diversity(log_determinant(0.01), 1.0, scope="batch")
    ),
    "distinct": Entry("distinct", sj.distinct(1.5)),
    "distinct, wide": Entry("distinct", sj.distinct(sj.linear(2.0, 0.5), bandwidth=2.5)),
    "odd": Entry("odd", sj.odd(sj.linear(8.0, 2.0))),
    "odd, sequential": Entry(
        "odd", sj.odd(4.0, features="embeddings", pool="mean", sequential=True)
    ),
    "odd, protected": Entry(
        "odd",
        sj.odd(4.0, pool="positional", top=3, weighted=False, protect=[2, 5], jitter=0.01),
        permute=rename_protected,
    ),
    "dpp": Entry("dpp", sj.dpp(3.0, quality=2.0, ridge=1e-3)),
}
