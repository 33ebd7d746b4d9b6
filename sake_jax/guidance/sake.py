"""SAKE, semantic-aware kernel entropy guidance: the method of the paper."""

from typing import Any

from sake_jax.guidance.diversity import Diversity, diversity
from sake_jax.guidance.objectives import collision
from sake_jax.typing import Number


def sake(strength: Number = 1.0, **options: Any) -> Diversity:
    """Semantic-Aware Kernel Entropy guidance: z + γ ψ with ψ = E ∇_h D (Eq. 16).

    D_i = -Σ_{j≠i} κ_attn(i, j)² κ(h_i, h_j)² falls as row i comes near other rows, so ψ
    favours tokens that carry a sequence away from what it says already. Maximising ΣD
    maximises the order-2 Rényi entropy of the kernel matrix (Proposition 4.2).

    The options are those of `diversity`. The defaults follow measurements (README) rather
    than the paper's letter: rows are the head's input and E is the head's own table, since
    with untied tables the input embedding gives noise; the signal then passes through the
    head with the features and costs next to nothing. The bandwidth is the median distance
    of the rows, and the signal has unit RMS, so that γ means the same for every model.
    `paper_sake` is the literal reading.

    A negative strength turns the push around: texts come to repeat themselves. The command line
    refuses it.

    Which form for what: the default makes one sample less repetitive, and sharpens each
    position (Corr[z, ψ] > 0); `scope="batch", self_term=0.0` spreads the samples of a prompt.

        >>> import sake_jax as sj
        >>> trusted = sj.chain(sj.top_p(0.95), sj.sake(1.0))  # the paper's trust region
        >>> apart = sj.sake(1.0, scope="batch", self_term=0.0, kl_budget=0.5)
    """
    return diversity(collision, strength, **options)


def paper_sake(
    strength: Number, bandwidth: Number, attention_bandwidth: Number = 20.0
) -> Diversity:
    """Algorithm 1 to the letter: H the last hidden states, E the vocabulary embedding.

    No normalisation, so γ has the scale of the model at hand.

    >>> import sake_jax as sj
    >>> guidance = sj.paper_sake(0.7, bandwidth=20.0, attention_bandwidth=sj.vanishing(60))
    """
    return diversity(
        collision,
        strength,
        bandwidth=bandwidth,
        attention_bandwidth=attention_bandwidth,
        source="hidden",
        table="input",
        normalize="none",
        gradient="closed_form",
    )
