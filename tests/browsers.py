"""Chromium without a window, for the tests that look at pages; where there is none, they skip."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needed = pytest.mark.skipif(
    not (PROGRAM and DRIVER),
    reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
)
FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync window-size=1200,1000"
)


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with an empty profile, which keeps what its console says."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAM
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def said(browser: Any) -> list[dict[str, Any]]:
    """What the console was told, but for what Chromium tells of its own pages without a network."""
    return [
        line for line in browser.get_log("browser") if not line["message"].startswith("chrome://")
    ]


@contextmanager
def phone(browser: Any) -> Iterator[int]:
    """The browser as a phone; gives its width."""
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield size["width"]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def dark(browser: Any) -> Iterator[None]:
    """The browser of somebody who asks for dark pages."""
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
