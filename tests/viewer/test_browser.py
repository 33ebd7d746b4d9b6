"""The page in a browser: Chromium without a window, where it is installed."""

import dataclasses
import time

import pytest

from browsers import dark, needed, phone, said
from sake_jax.viewer import render_page

pytest.importorskip("selenium")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = needed


@pytest.fixture(scope="module")
def file(recording, words, tmp_path_factory):
    """Two runs of three samples; texts hold markup."""
    run = dataclasses.replace(recording(size=8), prompts=[[0, 3, 4]])
    other = dataclasses.replace(recording(size=8, seed=1), prompts=[[0, 3, 4]], name="unguided")
    title = "<script>alert('title')</script>"
    return render_page([run, other], words, title).save(
        tmp_path_factory.mktemp("page") / "run.html"
    )


@pytest.fixture
def shown(browser, file):
    """The page, freshly opened; its console must stay silent."""
    browser.get(file.as_uri())
    yield browser
    assert said(browser) == []


def find(browser, css):
    return browser.find_elements("css selector", css)


def ask(browser, code):
    return browser.execute_script(f"return {code}")


def press(browser, *keys):
    ActionChains(browser).send_keys(*keys).perform()


def choose(browser, control, value):
    (option,) = find(browser, f"#{control} option[value='{value}']")
    option.click()


def pairs(flat):
    return list(zip(flat[::2], flat[1::2], strict=True))


def written(browser):
    """How many tokens each text shows."""
    return [len(find(text, ".token:not(.open):not(.given)")) for text in find(browser, ".text")]


def test_the_slider_fills_the_canvas(shown):
    assert written(shown) == [12, 12], "it begins with the end"
    shown.execute_script(
        "slider.value = 5; slider.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert written(shown) == [5, 5]
    assert len(find(shown, ".text .open")) == 14
    assert find(shown, "#count")[0].text == "5 / 12"
    assert len(find(shown, ".text .fresh")) == 2
    assert "5 of 12 tokens written" in find(shown, ".panel")[0].text


def test_play_runs_to_the_end_and_can_be_paused(shown):
    (play,) = find(shown, "#play")
    shown.execute_script("goTo(9)")
    play.click()
    assert play.get_attribute("aria-label") == "Pause"
    until = time.monotonic() + 10
    while ask(shown, "state.step") < 12 and time.monotonic() < until:
        time.sleep(0.05)
    assert written(shown) == [12, 12]
    assert play.get_attribute("aria-label") == "Play"
    shown.execute_script("goTo(0)")
    play.click()
    play.click()
    assert ask(shown, "timer") is None
    assert ask(shown, "state.step") < 12


def test_keys(shown):
    press(shown, Keys.HOME)
    assert written(shown) == [0, 0]
    press(shown, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert written(shown) == [1, 1]
    press(shown, Keys.END)
    assert ask(shown, "state.step") == 12
    find(shown, "#slider")[0].send_keys(Keys.ARROW_LEFT)
    assert ask(shown, "state.step") == 11, "the slider's own arrows count once"
    press(shown, Keys.SPACE)
    assert ask(shown, "timer !== null")
    press(shown, Keys.SPACE)
    assert ask(shown, "timer") is None


def test_keys_walk_the_tokens(shown):
    (first, *_) = find(shown, ".text [tabindex='0']")
    shown.execute_script("arguments[0].focus()", first)
    press(shown, Keys.ARROW_RIGHT)
    assert ask(shown, "document.activeElement.cell.column") == 1
    assert find(shown, "#inspector")[0].is_displayed()
    press(shown, Keys.ENTER)
    assert "held" in find(shown, "#inspector")[0].get_attribute("class")
    press(shown, Keys.ESCAPE)
    assert not find(shown, "#inspector")[0].is_displayed()
    assert ask(shown, "document.activeElement === slider")
    assert ask(shown, "state.step") == 12


def test_hovering_shows_candidates_and_repellers(shown):
    token = find(shown, ".text .token:not(.given)")[4]
    ActionChains(shown).move_to_element(token).perform()
    (box,) = find(shown, "#inspector")
    assert box.is_displayed()
    assert [part.text for part in find(box, "h4")] == ["before guidance", "after guidance"]
    row = "data.runs[0].rows[0]"
    event = f"{row}.column.indexOf(4)"
    names = ask(shown, f"candidates({row}.details[{event}][1]).map(([at]) => data.pieces[at])")
    pieces = [part.text.removeprefix("▸ ") for part in find(box, ".list:last-child .piece")]
    assert pieces == [name.replace("\n", "↵").strip() for name in names]
    assert "probability 0." in box.text
    assert "entropy " in box.text
    columns = ask(shown, f"{row}.details[{event}][2].filter((_, at) => at % 2 === 0)")
    lit = ask(shown, "[...document.querySelectorAll('.repels')].map((node) => node.cell.column)")
    assert sorted(lit) == sorted(column for column in columns if column >= -3)
    rows, samples = find(box, ".repellers")
    assert len(find(rows, ".repeller")) == len(lit)
    weights = ask(shown, f"{row}.details[{event}][4]")
    words = ask(shown, "[1, 2].map((sample) => wordOf(0, sample, 4))")
    said = [f"sample {at + 1}: {words[at - 1]} {weight:.2f}" for at, weight in pairs(weights)]
    assert [part.text for part in find(samples, ".repeller")] == said
    find(shown, "h1")[0].click()
    ActionChains(shown).move_to_element(find(shown, "h1")[0]).perform()
    assert not box.is_displayed()


def test_a_sample_that_repels_is_lit_beside(shown):
    find(shown, ".map .cell")[1].click()
    find(shown, ".text .token:not(.given)")[4].click()
    lit = "[...document.querySelectorAll('article:last-child .repels')].map((n) => n.cell.column)"
    assert ask(shown, lit) == [4], "the same place in sample 2"
    when = "[0, 1].map((at) => canvases[at].row.step[canvases[at].row.column.indexOf(COLUMN)])"
    steps = {column: ask(shown, when.replace("COLUMN", str(column))) for column in range(12)}
    column, (first, _) = next(found for found in steps.items() if found[1][0] < found[1][1])
    cell = f"canvases[0].cells.find((cell) => cell.column === {column})"
    shown.execute_script(f"goTo({first + 1}); choose({cell}.node, true)")
    assert "sample 2: not written" in find(shown, "#inspector")[0].text


def test_a_click_holds_a_token(shown):
    tokens = find(shown, ".text .token:not(.given)")
    tokens[2].click()
    ActionChains(shown).move_to_element(tokens[7]).perform()
    assert ask(shown, "chosen.cell.column") == 2
    press(shown, Keys.HOME)
    assert "Not written after step 0" in find(shown, "#inspector")[0].text
    find(shown, "#inspector .close")[0].click()
    assert not find(shown, "#inspector")[0].is_displayed()


def test_colours(shown):
    level = "[...document.querySelectorAll('.token:not(.given)')].map((n) => n.style.cssText)"
    sure = ask(shown, level)
    choose(shown, "colour", "entropy")
    assert ask(shown, level) != sure
    assert find(shown, "#high")[0].text == "4+ nats"
    row = "canvases[0].row"
    told = ask(
        shown,
        f"canvases[0].cells.filter((c) => c.kind === 'written').map((c) => "
        f"[Number(c.node.style.getPropertyValue('--level')), {row}.details[c.event][3]])",
    )
    assert told
    assert all(level == pytest.approx(min(nats / 4, 1), abs=1e-3) for level, nats in told)


def test_side_by_side_alone_and_other_samples(shown):
    headings = lambda: [part.text for part in find(shown, ".panel h2")]  # noqa: E731
    assert headings() == ["guided, sample 1", "unguided, sample 1"]
    choose(shown, "sample", 2)
    assert headings() == ["guided, sample 3", "unguided, sample 3"]
    choose(shown, "shown", 1)
    assert headings() == ["unguided, sample 3"]
    tokens = ask(shown, "canvases[0].cells.filter((c) => c.column >= 0).map((c) => c.event)")
    assert tokens == ask(shown, "[...writings(data.runs[1].rows[2], 12, 12)]")


def test_curves_mark_the_step(shown):
    titles = [part.text for part in find(shown, ".chart h3")]
    assert titles == [
        "Entropy before → after, nats",
        "Cov[z, ψ]",
        "KL moved, nats",
        "Tokens written at a step",
    ]
    shown.execute_script("goTo(3)")
    entropy = ask(shown, "data.runs[1].rows[0].curves.entropy[2]")
    assert f"→ {entropy:.2f}" in find(shown, ".chart .readings")[0].text
    before = ask(shown, "document.querySelector('.now').getAttribute('x1')")
    (plot, *_) = find(shown, ".plot")
    ActionChains(shown).move_to_element(plot).click().perform()
    assert ask(shown, "document.querySelector('.now').getAttribute('x1')") != before


def test_similar_samples_open_side_by_side(shown):
    cells = find(shown, ".map:last-child .cell")
    assert len(cells) == 9
    one, other = (ask(shown, f"[...bigrams(1, {at})]") for at in (0, 2))
    alike = len({*one} & {*other}) / len({*one} | {*other})
    assert cells[2].text == f"{alike:.2f}".removeprefix("0")
    cells[2].click()
    headings = [part.text for part in find(shown, ".panel h2")]
    assert headings == ["unguided, sample 1", "unguided, sample 3"]
    find(shown, "#unpair")[0].click()
    assert len({part.text for part in find(shown, ".panel h2")}) == 2
    shown.execute_script("goTo(0)")
    assert "mean 0.000" in find(shown, ".map")[0].text


def test_dark_and_light(shown):
    ground = lambda: ask(shown, "getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light, (button,) = ground(), find(shown, "#theme")
    button.click()
    night = ground()
    assert night != light
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert ground() == light
    with dark(shown):
        shown.refresh()
        assert ground() == night


def test_markup_in_tokens_is_text(shown):
    assert find(shown, "h1")[0].text == "<script>alert('title')</script>"
    assert len(find(shown, "script")) == 2
    assert not find(shown, ".text b")
    said = find(shown, ".text")[0].text
    assert "<script>alert('token')</script>" in said
    assert "&amp;" in said, "which is what the token says"


def test_everything_that_can_be_pressed_has_a_name(shown):
    name = "(node) => node.getAttribute('aria-label') || node.textContent.trim()"
    nameless = f"[...document.querySelectorAll('button')].filter((node) => !({name})(node)).length"
    assert ask(shown, nameless) == 0
    unlabelled = "[...document.querySelectorAll('select, input')].filter((node) => "
    unlabelled += "!node.labels.length && !node.ariaLabel).length"
    assert ask(shown, unlabelled) == 0


def test_a_phone_does_not_scroll_sideways(shown):
    with phone(shown) as width:
        shown.refresh()
        assert ask(shown, "document.documentElement.scrollWidth") <= width
        find(shown, ".text .token:not(.given)")[3].click()
        sheet = find(shown, "#inspector")[0].rect
        assert (sheet["x"], sheet["width"]) == (0, width)
        assert ask(shown, "document.documentElement.scrollWidth") <= width


def test_ids_and_a_single_text(browser, recording, tmp_path):
    run = recording(samples=1)
    browser.get(render_page([run]).save(tmp_path / "ids.html").as_uri())
    assert find(browser, ".panel h2")[0].text == "the text"
    assert find(browser, ".text")[0].text.split() == [
        *map(str, run.prompts[0]),
        *map(str, run.tokens[0]),
    ]
    assert not find(browser, "#maps")[0].is_displayed()
    hidden = ("prompt", "sample", "shown")
    assert not any(find(browser, f"#{name}-choice")[0].is_displayed() for name in hidden)
    assert said(browser) == []


def test_a_notebook_shows_the_page_in_a_frame(browser, recording, words, tmp_path):
    cell = tmp_path / "notebook.html"
    cell.write_text(
        f"<!doctype html><p>a cell</p>{render_page([recording()], words)._repr_html_()}"
    )
    browser.get(cell.as_uri())
    browser.switch_to.frame(find(browser, "iframe")[0])
    browser.execute_script("goTo(5)")
    assert written(browser) == [5]
    find(browser, "#theme")[0].click()
    browser.switch_to.default_content()
    assert said(browser) == []


def test_tokens_that_are_taken_back(browser, recording, words, tmp_path):
    run = recording(samples=1, rewrites=3)
    browser.get(render_page([run], words).save(tmp_path / "again.html").as_uri())
    for step in (1, 6, 12):
        browser.execute_script(f"goTo({step})")
        there = "canvases[0].cells.filter((c) => c.column >= 0 && c.kind === 'written')"
        columns = ask(browser, f"{there}.map((c) => c.column)")
        tokens = run.trajectory[step - 1, 0]
        assert columns == [at for at, token in enumerate(tokens) if token != run.mask_id]
        ids = ask(browser, f"{there}.map((c) => data.ids[canvases[0].row.token[c.event]])")
        assert ids == [token for token in tokens.tolist() if token != run.mask_id]
    earlier = (
        "canvases[0].cells.find((c) => c.kind === 'written' && !canvases[0].row.details[c.event])"
    )
    browser.execute_script(f"goTo(8); choose(({earlier}).node, true)")
    assert "Written again later" in find(browser, "#inspector")[0].text
    assert said(browser) == []
