"""The page to play with, in a browser: Chromium without a window, where it is installed."""

import json
import re
import time
import urllib.parse

import pytest

from browsers import dark, needed, phone, said

pytest.importorskip("selenium")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

pytestmark = needed


def find(browser, css):
    return browser.find_elements("css selector", css)


def ask(browser, code):
    return browser.execute_script(f"return {code}")


def status(browser):
    return find(browser, "#status")[0].text


def texts(browser):
    """What the cards say, without what is still to be written."""
    words = "[...t.querySelectorAll('.token:not(.open)')].filter((n) => n.offsetParent)"
    return ask(
        browser,
        "[...document.querySelectorAll('.text')].map((t) => "
        f"{words}.map((n) => n.cell.space.data + n.textContent).join(''))",
    )


def written(browser):
    """How many tokens each card shows."""
    tokens = "t.querySelectorAll('.token:not(.open):not(.given)').length"
    return ask(browser, f"[...document.querySelectorAll('.text')].map((t) => {tokens})")


def slide(browser, name, value):
    browser.execute_script(
        "const node = document.getElementById(arguments[0]); node.value = arguments[1];"
        "node.dispatchEvent(new Event('input', {bubbles: true}))",
        name,
        str(value),
    )


CHOOSE = """
const select = document.getElementById(arguments[0]);
select.value = arguments[1];
for (const kind of ["input", "change"]) select.dispatchEvent(new Event(kind, {bubbles: true}));
return select.value;
"""


def choose(browser, control, value):
    assert browser.execute_script(CHOOSE, control, value) == value, "it is one of the options"


def text_of(browser, name):
    """In one go: between two questions the page may have drawn the element anew."""
    return browser.execute_script("return document.getElementById(arguments[0]).innerText", name)


def settings(browser):
    query = urllib.parse.urlsplit(browser.current_url).query
    return dict(urllib.parse.parse_qsl(query, keep_blank_values=True))


class Page:
    """The page, which counts its runs, so that a test can wait for the next one to be done."""

    def __init__(self, browser, server, play):
        self.browser, self.server, self.play = browser, server, play

    def open(self, query=""):
        self.browser.get(self.server.url + query)
        self.settled()

    def settled(self):
        """Waits until nothing is being written, nor about to be, nor to be drawn."""
        idle = "running === null && waiting === null && !painting"
        self.play.wait_until(lambda: ask(self.browser, idle))

    def does(self, action):
        """Waits for the run that an action begins, and for its end."""
        before = ask(self.browser, "runs")
        action()
        self.play.wait_until(lambda: ask(self.browser, "runs") > before)
        self.settled()


@pytest.fixture
def page(browser, server, play):
    """The page after its first run; its console must stay silent."""
    made = Page(browser, server, play)
    made.open()
    yield made
    assert said(browser) == []
    browser.get("about:blank")  # which ends its runs


def test_it_writes_by_itself_side_by_side(page):
    browser = page.browser
    heads = [part.text for part in find(browser, ".head-of-column h2")]
    assert heads == ["sake 1", "no guidance"]
    assert written(browser) == [8, 8, 8, 8]
    assert text_of(browser, "count") == "8 / 8"
    assert all(text.startswith("ab") for text in texts(browser))
    assert "<257>" not in " ".join(texts(browser)), "a beginning's special token is no text"
    assert len({*texts(browser)}) > 1


def test_typing_writes_another_beginning(page):
    browser = page.browser
    (prompt,) = find(browser, "#prompt")

    def type_and_enter():
        prompt.clear()
        prompt.send_keys("xyz", Keys.ENTER)

    page.does(type_and_enter)
    assert all(text.startswith("xyz") for text in texts(browser))
    assert settings(browser)["prompt"] == "xyz"
    page.does(lambda: prompt.send_keys("!"))  # and a pause, without Enter
    assert all(text.startswith("xyz!") for text in texts(browser))
    page.does(lambda: prompt.send_keys(Keys.BACKSPACE, Keys.SHIFT, Keys.ENTER, Keys.NULL, "q"))
    assert settings(browser)["prompt"] == "xyz\nq"


def test_a_slider_compiles_nothing(page):
    browser = page.browser
    before = texts(browser)
    page.does(lambda: slide(browser, "temperature", 0))
    page.does(lambda: slide(browser, "strength", 3.5))
    assert texts(browser) != before
    assert re.fullmatch(
        r"[\d.]+ ms a step with guidance, [\d.]+ ms without; nothing compiled", status(browser)
    )
    assert ask(browser, "spent.traced + spent.compiled") == 0
    assert find(browser, "output[for=strength]")[0].text == "3.5"
    assert settings(browser)["strength"] == "3.5"
    names = [part.text for part in find(browser, ".head-of-column h2")]
    assert names == ["sake 3.5", "no guidance"]
    arrow = find(browser, "#temperature")[0]
    page.does(lambda: arrow.send_keys(Keys.ARROW_RIGHT))
    assert settings(browser)["temperature"] == "0.05"
    assert ask(browser, "spent.traced + spent.compiled") == 0


def test_a_bandwidth_of_ones_own(page):
    browser = page.browser
    assert find(browser, "output[for=bandwidth]")[0].text == "median"
    page.does(find(browser, "#median")[0].click)
    assert settings(browser)["bandwidth"] == "8"
    assert "compiled, once for this choice" in status(browser)
    page.does(lambda: slide(browser, "bandwidth", 2))
    assert settings(browser)["bandwidth"] == "4"
    assert "nothing compiled" in status(browser)
    page.does(find(browser, "#median")[0].click)
    assert settings(browser)["bandwidth"] == ""


def test_another_guidance_and_order(page):
    browser = page.browser
    page.does(lambda: choose(browser, "order", "leftmost"))
    row = "data.runs[0].rows[0]"
    assert ask(browser, f"{row}.column") == list(range(8)), "left to right"
    page.does(lambda: choose(browser, "guidance", "paper"))
    assert settings(browser)["bandwidth"] == "8", "the paper's guidance needs one"
    page.does(lambda: choose(browser, "guidance", "none"))
    assert len(find(browser, ".panel")) == 2
    assert [part.text for part in find(browser, ".head-of-column h2")] == ["no guidance"]
    assert settings(browser)["bandwidth"] == ""
    assert find(browser, "#bandwidth")[0].get_attribute("disabled")


def test_a_seed_reproduces_and_a_link_carries_everything(page):
    browser = page.browser
    first = texts(browser)
    page.does(find(browser, "#again")[0].click)
    assert texts(browser) != first
    page.does(lambda: slide(browser, "seed", 0))
    assert texts(browser) == first
    page.does(lambda: slide(browser, "strength", 2))
    page.does(lambda: slide(browser, "samples", 3))
    page.does(lambda: slide(browser, "length", 4))
    wanted, link = texts(browser), browser.current_url
    assert len(wanted) == 6
    page.open()
    assert texts(browser) == first, "the address without settings"
    page.open(f"?{urllib.parse.urlsplit(link).query}")
    assert texts(browser) == wanted
    assert find(browser, "#samples")[0].get_attribute("value") == "3"
    find(browser, "#link")[0].click()
    page.play.wait_until(lambda: "it holds all settings" in status(browser))


def test_a_link_keeps_what_no_slider_can_say(page):
    page.open("?strength=1.2345&temperature=9&steps=4&bandwidth=0.333")
    assert settings(page.browser).items() >= {
        ("strength", "1.2345"),
        ("temperature", "9"),
        ("steps", "4"),
        ("bandwidth", "0.333"),
    }
    assert find(page.browser, "#count")[0].text == "4 / 4"
    assert float(find(page.browser, "#temperature")[0].get_attribute("value")) == 9


def test_steps_arrive_one_by_one_and_can_be_gone_back_to(page):
    browser, held = page.browser, []
    live = page.server.studio.live

    class Slow:
        name, settings = page.server.studio.name, page.server.studio.settings

        def live(self, given):
            held.append(page.play.Held(live(given)))
            return held[-1]

    page.server.studio = Slow()
    find(browser, "#write")[0].click()
    page.play.wait_until(lambda: len(held) == 1)
    assert text_of(browser, "write") == "Stop"
    for step in (1, 2, 3):
        held[0].free.release(2 if step == 1 else 1)  # the first event says what will come
        page.play.wait_until(lambda step=step: written(browser) == [step] * 4)
        assert text_of(browser, "count") == f"{step} / 8"
        assert len(find(browser, ".fresh")) == 4
    slide(browser, "slider", 1)
    page.play.wait_until(lambda: written(browser) == [1] * 4)
    held[0].free.release()
    page.play.wait_until(lambda: ask(browser, "data.runs[0].taken") == 4)
    assert written(browser) == [1] * 4, "who looks back is left there"
    slide(browser, "slider", 8)
    page.play.wait_until(lambda: written(browser) == [4] * 4)
    held[0].free.release(5)
    page.settled()
    assert written(browser) == [8] * 4
    assert text_of(browser, "write") == "Write"


def endless(page):
    """Makes runs that never end by themselves."""
    made = []
    events = list(page.server.studio.live({"prompt": "ab", "length": "8"}).events())

    class Endless:
        name, settings = page.server.studio.name, page.server.studio.settings

        def live(self, given):
            made.append(page.play.Script(self.forever()))
            return made[-1]

        def forever(self):
            yield events[0]
            while True:
                time.sleep(0.01)  # as a step would take
                yield events[1]

    page.server.studio = Endless()
    return made


@pytest.mark.parametrize("how", ["the button", "Escape", "another page"])
def test_it_stops(page, how):
    browser, made = page.browser, endless(page)
    find(browser, "#write")[0].click()
    page.play.wait_until(lambda: page.server.running == 1 and made)
    if how == "the button":
        find(browser, "#write")[0].click()
    elif how == "Escape":
        ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    else:
        browser.get("about:blank")
    page.play.wait_until(lambda: page.server.running == 0 and made[0].closed.is_set())
    if how != "another page":
        assert text_of(browser, "write") == "Write"
        assert not find(browser, "#problem")[0].is_displayed()


def test_a_new_run_ends_the_one_before(page):
    made = endless(page)
    find(page.browser, "#write")[0].click()
    page.play.wait_until(lambda: page.server.running == 1 and made)
    slide(page.browser, "strength", 2)
    page.play.wait_until(lambda: len(made) == 2 and made[0].closed.is_set())
    page.play.wait_until(lambda: page.server.running == 1)


def test_two_pages_at_once(page):
    browser, first = page.browser, page.browser.current_window_handle
    browser.switch_to.new_window("window")
    second = browser.current_window_handle
    try:
        page.open("?prompt=cd")
        made = endless(page)
        find(browser, "#write")[0].click()
        browser.switch_to.window(first)
        find(browser, "#write")[0].click()
        page.play.wait_until(lambda: page.server.running == 2)
        browser.switch_to.window(second)
        browser.close()  # the page, not only its run
        page.play.wait_until(lambda: page.server.running == 1 and made[0].closed.is_set())
        assert not made[1].closed.is_set()
    finally:
        if second in browser.window_handles:
            browser.switch_to.window(second)
            browser.close()
        browser.switch_to.window(first)


def test_errors_are_the_servers_own_words(page):
    browser = page.browser
    page.does(lambda: slide(browser, "samples", 99))
    (problem,) = find(browser, "#problem")
    assert "Invalid value for '--samples'" in problem.text
    assert len(find(browser, ".panel")) == 4, "what was written stays"
    page.does(lambda: slide(browser, "samples", 1))
    assert not problem.is_displayed()
    page.open("?colour=red")
    said_here = find(browser, "#problem")[0].text
    assert re.search("No such option:? '?--colour", said_here), "the command line's words, too"
    assert any("400" in line["message"] for line in said(browser)), "Chromium notes refusals"


def test_a_server_that_has_gone(page):
    browser = page.browser
    browser.execute_script("window.fetch = () => Promise.reject(new TypeError('gone'))")
    page.does(find(browser, "#write")[0].click)
    assert "start `sake-jax play` again" in find(browser, "#problem")[0].text


def test_marks(page):
    browser = page.browser
    slides = "data.runs[0].rows[0].token.fill(data.runs[0].rows[0].token[0]); paint()"
    browser.execute_script(slides)  # a text of one token again and again
    page.settled()
    level = "[...document.querySelectorAll('.text')[0].querySelectorAll('.token:not(.given)')]"
    level += ".map((node) => Number(node.style.getPropertyValue('--level')))"
    assert ask(browser, level) == [0, *[0.6] * 7], "all pairs but the first stood there before"
    assert ask(browser, "repeats(0, data.runs[0].rows[0]).repeated") == 6
    choose(browser, "mark", "confidence")
    page.settled()
    chance = "data.runs[0].rows[0].chance"
    assert any(ask(browser, chance))
    assert ask(browser, level) != [0, *[0.6] * 7]
    choose(browser, "mark", "nothing")
    page.settled()
    assert ask(browser, level) == [0] * 8


def test_a_text_that_ends_early_shows_no_gaps(page):
    browser = page.browser
    browser.execute_script(
        "const row = data.runs[0].rows[0]; const run = data.runs[0];"
        "run.end = row.token[row.column.indexOf(3)]; row.over = null;"
        "row.token = row.token.map((token, at) => (row.column[at] < 3 && token === run.end)"
        " ? run.mask : token); close(run, row, 8); paint()"
    )
    page.settled()
    shown = ask(
        browser, "canvases[0].cells.filter((c) => c.node.offsetParent).map((c) => c.column)"
    )
    assert max(shown) == 2


def test_save_as_page(page, tmp_path):
    browser = page.browser
    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    wanted = texts(browser)
    (button,) = find(browser, "#save")
    button.click()
    file = tmp_path / "run.html"
    page.play.wait_until(lambda: file.exists() and button.is_enabled())
    tree = json.loads(re.search(r'id="payload">(.*?)</script>', file.read_text(), re.S)[1])
    assert [run["name"] for run in tree["runs"]] == ["sake 1", "no guidance"]
    browser.get(file.as_uri())
    assert text_of(browser, "count") == "8 / 8"
    text = "c.kind === 'written' && !c.node.classList.contains('special')"
    cells = f"canvases.map((canvas) => canvas.cells.filter((c) => {text})"
    saved = ask(browser, f"{cells}.map((c) => c.space.data + c.node.textContent).join(''))")
    assert [f"ab{text}".replace("↵", "") for text in saved] == wanted[:2]


def test_dark_and_light(page):
    browser = page.browser
    ground = lambda: ask(browser, "getComputedStyle(document.body).backgroundColor")  # noqa: E731
    light, (button,) = ground(), find(browser, "#theme")
    button.click()
    night = ground()
    assert night != light
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    with dark(browser):
        page.open()
        assert ground() == night


def test_a_phone_does_not_scroll_sideways(page):
    browser = page.browser
    with phone(browser) as width:
        page.open()
        (settings,) = find(browser, "#settings")
        assert settings.get_attribute("open") is None, "texts come first"
        assert ask(browser, "document.documentElement.scrollWidth") <= width
        find(browser, "#settings summary")[0].click()
        assert find(browser, "#strength")[0].is_displayed()
        assert ask(browser, "document.documentElement.scrollWidth") <= width
        first, second = (part.rect for part in find(browser, ".panel")[:2])
        assert second["y"] > first["y"] + first["height"], "one below the other"
        names = [part.text for part in find(browser, ".panel h3")[:2]]
        assert names == ["sake 1, text 1", "no guidance, text 1"]


def test_everything_has_a_name_and_a_place_in_the_order_of_keys(page):
    browser = page.browser
    name = "(node) => node.getAttribute('aria-label') || node.textContent.trim()"
    nameless = f"[...document.querySelectorAll('button')].filter((node) => !({name})(node)).length"
    assert ask(browser, nameless) == 0
    unlabelled = "[...document.querySelectorAll('select, input, textarea')].filter((node) => "
    unlabelled += "!node.labels.length && !node.ariaLabel).map((node) => node.id)"
    assert ask(browser, unlabelled) == []
    find(browser, "#prompt")[0].click()
    reached = []
    for _ in range(10):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.append(ask(browser, "document.activeElement.id"))
    order = ["write", "guidance", "strength", "temperature", "bandwidth", "median", "order"]
    assert reached == [*order, "seed", "again", "samples"]
    assert not find(browser, ".text [tabindex]"), "texts are texts, not buttons"
