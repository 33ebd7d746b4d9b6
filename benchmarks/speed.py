"""Pages from benchmarks/results/speed.json: results/speed.md beside it, and the tables of README
and of docs/measured/speed.md.

To measure again on a quiet machine, and to plan again (needs the compilers of TPUs and GPUs):

    sake-jax bench --out benchmarks/results/speed.json
    sake-jax bench --plan v5e:2x4,tensor=8 --plan v5p:2x2x1,tensor=4 --plan v6e:1x1 \
        --plan h100:1 --compile --out benchmarks/results/speed.json
    python benchmarks/speed.py
"""

from pathlib import Path

from sake_jax.files import write_atomically
from sake_jax.planning.bench.report import render_markdown
from sake_jax.planning.bench.results_file import (
    read_results,
    replace_between_markers,
    short_table,
    summary_table,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "speed.json"


def pages() -> dict[Path, str]:
    """What the pages should be, by their paths."""
    results = read_results(RESULTS)
    commands = "`sake-jax bench` measures, `sake-jax bench --plan CHIPS` plans."
    whole = f"# Speed of guidance\n\n{commands}\n\n{render_markdown(results)}\n"
    made = {RESULTS.with_suffix(".md"): whole}
    for path, text in (
        (ROOT / "README.md", short_table(results)),
        (ROOT / "docs" / "measured" / "speed.md", summary_table(results)),
    ):
        made[path] = replace_between_markers(path.read_text(), "speed", text)
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        write_atomically(path, text)
