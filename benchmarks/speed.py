"""Pages from benchmarks/results/speed.json: results/speed.md beside it, and README's table.

To measure again on a quiet machine, and to plan again (needs the compilers of TPUs and GPUs):

    sake-jax bench --out benchmarks/results/speed.json
    sake-jax bench --plan v5e:2x4,tensor=8 --plan v5p:2x2x1,tensor=4 --plan v6e:1x1 \
        --plan h100:1 --compile --out benchmarks/results/speed.json
    python benchmarks/speed.py
"""

from pathlib import Path

from sake_jax.planning.bench.report import render_markdown
from sake_jax.planning.bench.results_file import (
    read_results,
    replace_between_markers,
    summary_table,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "speed.json"


def pages() -> dict[Path, str]:
    """What the pages should be, by their paths."""
    results, readme = read_results(RESULTS), ROOT / "README.md"
    commands = "`sake-jax bench` measures, `sake-jax bench --plan CHIPS` plans."
    return {
        RESULTS.with_suffix(
            ".md"
        ): f"# Speed of guidance\n\n{commands}\n\n{render_markdown(results)}\n",
        readme: replace_between_markers(readme.read_text(), "speed", summary_table(results)),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
