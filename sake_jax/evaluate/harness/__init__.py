"""Our models in lm-evaluation-harness, as its model `sake_jax`.

    python -m sake_jax.evaluate.harness --model sake_jax --model_args \\
        model=tinystories,guidance=sake,strength=1,length=64 --tasks gsm8k --batch_size 8

lm_eval finds only its own models by itself, so its command must be begun through this package; all
of its arguments are as ever. In Python, importing this package is enough:

    import lm_eval, sake_jax.evaluate.harness
    lm_eval.simple_evaluate(model="sake_jax", model_args={"length": 64}, tasks=["gsm8k"])

`Options` and `sake_jax.Request` list the model_args. Who decides:

- `until` of a task ends a text; so does the model's own end token.
- `length`, `temperature` and `top_p` are the task's (max_gen_toks, temperature with do_sample, and
  top_p) unless model_args say them: then those hold, and a difference is logged as a warning. A
  task that says nothing is greedy, with 256 tokens. Other generation_kwargs are refused.
- A random key belongs to (seed, prompt, repeat): texts do not depend on batch, order, --limit or
  --samples. Two documents with the same prompt get the same texts.
- Log-likelihoods are of the model, without guidance: for diffusion models the bound of
  `sake_jax.log_likelihood`, whose draws come from seed and tokens, so that company changes no more
  than the rounding; for causal ones exact.
- is_greedy is whether masked decoding at temperature 0, one token a step, the surest first, writes
  the very continuation, as LLaDA's evaluation has it; for causal models whether each token is the
  likeliest. Where nobody looked (greedy=false), or where no such text is defined (uniform noise,
  block diffusion, networks that are told the time), it is False, and a warning is logged.
- Texts that exceed the model's context are refused before the first is run, unless truncate=true.
- With --use_cache, what is done is kept after each batch, and a run that was cut goes on. A cache
  serves one model with one set of options. `repeats` need do_sample=true there: lm_eval's cache has
  one entry for equal requests, while sampled ones are kept by this package, one by one.
- lm_eval names the device "cuda:0" where nobody named one; JAX chooses it in either case.
"""

try:
    import lm_eval.models  # noqa: F401  its own are registered only while there are no others
except ImportError as error:
    rule = "sake_jax.evaluate.harness must find lm-evaluation-harness"
    raise ImportError(f'{rule}, got "{error}"; pip install "sake-jax[eval]".') from error

from sake_jax.evaluate.harness.model import HarnessModel as HarnessModel
from sake_jax.evaluate.harness.options import Options as Options
