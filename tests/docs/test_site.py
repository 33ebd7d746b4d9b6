"""The documentation builds without warnings; its links lead somewhere; it needs no network."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from browsers import dark, needed, phone, said
from pages import ROOT
from public_api import MODULES, public


class Seen(HTMLParser):
    """The targets of a page's links, what it loads, and the places that can be linked to."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found["id"]} if found.get("id") else set()
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in ("script", "img", "link", "iframe"):
            self.loads += [found[name] for name in ("src", "href") if found.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages by their paths."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", ROOT / "docs", out]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "HOME": str(out)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {path: Seen(path) for path in out.rglob("*.html")}


def test_links_lead_somewhere(site):
    broken = []
    for path, seen in site.items():
        for link in seen.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.exists() if target not in site else True
            if not there or (parts.fragment and unquote(parts.fragment) not in site[target].ids):
                broken.append(f"{path.name}: {link}")
    assert not broken


def test_nothing_is_loaded_from_a_network(site):
    loads = [load for seen in site.values() for load in seen.loads]
    assert loads
    assert not [load for load in loads if urlsplit(load).netloc]


def test_every_public_name_is_in_the_reference(site):
    ids = set().union(*(seen.ids for seen in site.values()))
    names = [name for name in public() if name not in MODULES]
    assert not [name for name in names if f"sake_jax.{name}" not in ids]


def test_the_reference_reads_as_the_docstrings_do(site):
    """No sentence was taken for a type, no signature shows a function's address."""
    reference = [path.read_text() for path in site if path.parent.name == "api"]
    assert reference
    for ugly in ('Type<span class="colon">', "(*args", "&lt;function"):
        assert not [page for page in reference if ugly in page]


def test_pages_say_where_results_come_from(site):
    """Tables of benchmarks/results are on the site, not copies of them in its sources."""
    (page,) = (path for path in site if path.match("measured/experiments.html"))
    row = next(
        line
        for line in (ROOT / "benchmarks/results/gaussian/table.md").read_text().splitlines()
        if line.startswith("| SAKE | γ = 1 |")
    )
    text = re.sub(r"<[^>]+>", "", page.read_text())
    assert all(cell.strip() in text for cell in row.split("|"))


def test_experiments_that_were_not_run_say_so(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    included = importlib.import_module("included")
    (said,) = included.figures_and_table(tmp_path / "entropy")
    assert said == "*Not measured yet: `sake-jax experiment entropy` does it.*"


def test_long_tables_are_folded_and_intervals_stand_below(site):
    (page,) = (path.read_text() for path in site if path.match("measured/experiments.html"))
    assert page.count("<details>") == page.count("</details>") > 0
    assert re.search(r'<td class="short"><p>[\d.]+ <span class="interval">\([^<]+ to [^<]+\)', page)


@needed
def test_pages_fit_a_phone_and_their_consoles_are_silent(site, browser):
    wide = []
    with phone(browser) as width:
        for path in site:
            browser.get(path.as_uri())
            if browser.execute_script("return document.documentElement.scrollWidth") > width:
                wide.append(path.name)
    assert not wide
    assert said(browser) == []


@needed
def test_wide_tables_scroll_inside_their_boxes(site, browser):
    (page,) = (path for path in site if path.name == "speed.html")
    boxes = "[...document.querySelectorAll('.table-wrapper')]"
    with phone(browser):
        browser.get(page.as_uri())
        wider = browser.execute_script(f"return {boxes}.map((b) => b.scrollWidth - b.clientWidth)")
    assert max(wider) > 0


@needed
def test_pages_are_dark_where_that_is_asked_for(site, browser):
    (page,) = (path for path in site if path.name == "quickstart.html")
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.get(page.as_uri())
    light = browser.execute_script(ground)
    with dark(browser):
        browser.refresh()
        assert browser.execute_script(ground) != light
