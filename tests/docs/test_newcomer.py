"""A newcomer's way through README, quickstart and every recipe, in a fresh environment."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from newcomer import as_script, left_out
from pages import ROOT, blocks

NOT_CLONED = (".git", "build", "*.egg-info", "__pycache__", ".*_cache", "runs")
RECIPES = re.search(
    r"\{toctree\}\n:hidden:\n\n(.*?)```", (ROOT / "docs/recipes/index.md").read_text(), re.S
)[1].split()
WAY = ["README.md", "docs/quickstart.md", *(f"docs/recipes/{name}.md" for name in RECIPES)]


def test_what_is_run_and_what_is_not():
    """The script runs what can be run, so that it cannot become empty without a word."""
    shown = [block.text for page in WAY for block in blocks((ROOT / page).read_text())]
    commands = [line for text in shown for line in as_script(text)]
    for wanted in (
        "pip install -e .",
        "sake-jax generate --compare",
        "sake-jax doctor",
        "sake-jax plan llada-8b --topology v5e:4x4 --sweep",
        "sake-jax bench --plan v5e:2x4,tensor=8",
        "JAX_PROCESS_ID=0 sake-jax generate",
        "sake-jax train recipe.toml",
        "sake-jax view",
    ):
        assert any(line.startswith(wanted) for line in commands), wanted
    assert left_out("pytest -n auto")
    assert left_out("sake-jax train tinystories --data corpus")


@pytest.mark.slow
def test_a_newcomers_way(tmp_path):
    """Needs a package index: it installs what the pages say, and shortens nothing."""
    clone = shutil.copytree(ROOT, tmp_path / "clone", ignore=shutil.ignore_patterns(*NOT_CLONED))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"HOME": str(tmp_path / "home"), "JAX_PLATFORMS": "cpu"}
    environment["PATH"] = f"{tmp_path / 'env/bin'}:{environment['PATH']}"
    assert "\npip install -e .\n" in (clone / "README.md").read_text()
    program = [["pip", "install", "-q", "-e", "."]]
    program += [["python", "tests/newcomer.py", page] for page in WAY]
    for command in program:
        # The page on pods pretends to have eight devices, and says how.
        more = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        here = environment | (more if command[-1].endswith("pod.md") else {})
        done = subprocess.run(command, cwd=clone, env=here, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
