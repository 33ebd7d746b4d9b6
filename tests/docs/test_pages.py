"""Every block of code in README and in the documentation runs, and prints what the page shows."""

from pathlib import Path

import pytest

from pages import PAGES, ROOT, blocks, run_page, same, write_outputs
from sake_jax.conversion import families

SLOW = {"README", "differ", "evaluate", "match", "pod", "train", "view"}
"""Pages with programs that no other page has, or with a command that takes a minute."""
RUN = [
    pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW else (), id=page.stem)
    for page in PAGES
    if blocks(page.read_text())
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where a page may write; the repository's tests/ is there, as in a clone."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "96")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    # A page may register a family of its own, which is gone again for the next test.
    monkeypatch.setattr(families, "FAMILIES", families.FAMILIES)


@pytest.mark.parametrize("page", RUN)
def test_page(page, folder):
    for block, printed in run_page(page):
        remedy = f"python tests/pages.py {page.relative_to(ROOT)} writes it there"
        assert same(block.output, printed), f"line {block.line} printed\n{printed}\n{remedy}"


def test_readme_in_small(folder):
    """Its Python as it is shown, its command with few texts; `test_page` has it in full."""
    for block, printed in run_page(ROOT / "README.md", short=True):
        assert same(block.output, printed), f"line {block.line} printed\n{printed}"


def page_of(folder, *blocks):
    page = folder / "page.md"
    page.write_text("\n\n".join(f"```{language}\n{text}\n```" for language, text in blocks))
    return page


def test_another_output_is_noticed(tmp_path):
    shown = page_of(tmp_path, ("python", "print(6 * 7)"), ("text", "41"))
    ((block, printed),) = run_page(shown)
    assert (block.output, printed) == ("41\n", "42\n")
    assert not same(block.output, printed)
    write_outputs(shown)
    assert "41" not in shown.read_text()
    assert all(same(block.output, printed) for block, printed in run_page(shown))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (("py", "print(1)"), "line 1: py must be of"),
        (("bash", "rm -rf everything"), "tell in SHOWN_ONLY why not"),
        (("bash", "sake-jax inspect nowhere/at/all"), "sake-jax inspect nowhere/at/all"),
    ],
)
def test_blocks_that_cannot_run_are_named(tmp_path, block, message):
    with pytest.raises(AssertionError, match=message):
        list(run_page(page_of(tmp_path, block)))


def test_files_that_a_page_shows_are_there(folder):
    shown = page_of(
        Path.cwd(), ("toml", "# some.toml\na = 1"), ("python", "print(open('some.toml').read())")
    )
    list(run_page(shown))
    assert Path("some.toml").read_text() == "# some.toml\na = 1\n"


def test_readme_names_the_commands_that_ci_runs():
    readme = (ROOT / "README.md").read_text()
    assert "\npytest -n auto\n" in readme
    assert "pytest -m slow" in readme
    assert "\ntools/offline pytest -n auto\n" in (ROOT / ".ci/run").read_text()
