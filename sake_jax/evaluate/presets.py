"""The rows of the paper's tables: what was run there, and what came out."""

import dataclasses

from sake_jax.checks import one_of
from sake_jax.samplers import Request

LLADA = "GSAI-ML/LLaDA-8B-Base"
TEMPERATURES = (0.2, 0.5, 0.7)
TOP_PS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
KS = (1, 2, 8, 16, 32)
"""Those of the paper's table of pass@k."""

PASSES: dict[tuple[str, str], tuple[float, ...]] = {
    ("humaneval", "base-0.2"): (0.33, 0.34, 0.37, 0.39, 0.41),
    ("humaneval", "d-cfg-0.2"): (0.34, 0.36, 0.38, 0.40, 0.41),
    ("humaneval", "sake-0.2"): (0.32, 0.38, 0.47, 0.52, 0.56),
    ("humaneval", "base-0.5"): (0.33, 0.37, 0.46, 0.50, 0.53),
    ("humaneval", "d-cfg-0.5"): (0.32, 0.38, 0.47, 0.51, 0.55),
    ("humaneval", "sake-0.5"): (0.32, 0.38, 0.49, 0.54, 0.59),
    ("humaneval", "base-0.7"): (0.32, 0.38, 0.48, 0.53, 0.57),
    ("humaneval", "d-cfg-0.7"): (0.31, 0.37, 0.49, 0.54, 0.59),
    ("humaneval", "sake-0.7"): (0.31, 0.38, 0.51, 0.58, 0.64),
    ("mbpp", "base-0.2"): (0.40, 0.42, 0.46, 0.47, 0.48),
    ("mbpp", "d-cfg-0.2"): (0.37, 0.41, 0.43, 0.44, 0.46),
    ("mbpp", "sake-0.2"): (0.39, 0.44, 0.51, 0.54, 0.56),
}
"""pass@k as printed, for `KS`."""
TOP_P_PASSES = dict(zip(TOP_PS, (0.354, 0.366, 0.409, 0.409, 0.402, 0.412, 0.396), strict=True))
"""pass@32 on HumanEval for `TOP_PS`, without guidance."""
VOTES = {
    "base-0.2": {"strict-match": 0.715, "flexible-extract": 0.688},
    "d-cfg-0.2": {"strict-match": 0.732, "flexible-extract": 0.697},
    "sake-0.2": {"strict-match": 0.751, "flexible-extract": 0.735},
}
"""Self-consistency of five samples on GSM8K. Their temperature is not stated; 0.2 is our guess."""


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row."""

    name: str
    request: Request
    model: str = LLADA

    def printed(self, task: str) -> dict[str, float]:
        """What the paper reports of this row, by name of the measure; nothing where it does not."""
        passes = PASSES.get((task, self.name), ())
        reported = {f"pass@{k}": value for k, value in zip(KS, passes, strict=False)}
        if task == "humaneval" and self.name.startswith("top-p-"):
            reported["pass@32"] = TOP_P_PASSES[self.request.top_p]
        if task == "gsm8k":
            reported |= {
                f"vote@5 {rule}": share for rule, share in VOTES.get(self.name, {}).items()
            }
        return reported


SPREAD = Preset(
    "spread",
    Request(guidance="spread", strength=5.0, budget=0.1, temperature=0.15, order="random"),
    "tinystories",
)
"""No row of the paper: with it `experiment solve` solves more within many tries than with
temperature."""


def preset(name: str) -> Preset:
    """A row by its name, such as "sake-0.2" or "top-p-0.95".

    Length, steps and block are 256 each: with them the paper's pass@1 of the base model is that of
    LLaDA's own report. The paper searched the strengths and bandwidths of each method and prints
    none of them; here they are the strength of its one worked example, 0.7, with our defaults, and
    for D-CFG 0.5: `sake_jax.evaluate.search` looks for better ones. top-p is the 0.95 it settles
    on.

    >>> preset("sake-0.2").request.guidance
    'sake'
    """
    rows = presets()
    return rows[one_of("preset", name, rows)]


def presets() -> dict[str, Preset]:
    """All rows, by name."""
    methods = {"base": ("none", 1.0), "d-cfg": ("cfg", 0.5), "sake": ("sake", 0.7)}
    rows = [
        Preset(f"{name}-{value:g}", _request(*method, temperature=value, top_p=0.95))
        for value in TEMPERATURES
        for name, method in methods.items()
    ]
    rows += [
        Preset(f"top-p-{value:g}", _request("none", 1.0, temperature=0.2, top_p=value))
        for value in TOP_PS
    ]
    return {each.name: each for each in [*rows, SPREAD]}


def _request(guidance: str, strength: float, *, temperature: float, top_p: float) -> Request:
    return Request(
        guidance=guidance,
        strength=strength,
        temperature=temperature,
        top_p=top_p,
        length=256,
        steps=256,
        block=256,
    )
