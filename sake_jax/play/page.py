"""The page itself: the viewer's style and drawing, and what is around them here."""

import dataclasses
from importlib import resources

import sake_jax as sj
from sake_jax.play.draft import Draft
from sake_jax.play.studio import Studio
from sake_jax.viewer.html_page import fill_places, json_for_script, viewer_file

VIEWER_SCRIPTS = ("rows", "canvas", "theme")
SCRIPTS = ("desk", "repeats", "stage", "play")
"""In this order they are one program, after `live` and the viewer's."""


def render_play(studio: Studio, nonce: str) -> str:
    """The page of a studio; settings in its address are read by the page.

    Args:
      studio: whose model it is about, and where its settings begin.
      nonce: a random word, without which a browser runs no script here.
    """
    program = [_file("live.js"), *(viewer_file(f"{name}.js") for name in VIEWER_SCRIPTS)]
    about = {"model": studio.name, "settings": studio.settings(), "bounds": bounds()}
    about["takers"] = sj.Request.TAKERS
    parts = {
        "nonce": nonce,
        "style": viewer_file("page.css") + _file("play.css"),
        "about": json_for_script(about),
        "script": "\n".join([*program, *(_file(f"{name}.js") for name in SCRIPTS)]),
    }
    return fill_places(_file("play.html"), parts)


def bounds() -> dict[str, list[int | None]]:
    """[least, most] of the settings that have bounds, from the tables of options."""
    fields = (*dataclasses.fields(Draft), *dataclasses.fields(sj.Request))
    limits = {each.name: [each.metadata.get("min"), each.metadata.get("max")] for each in fields}
    return {name: both for name, both in limits.items() if both != [None, None]}


def security_policy(nonce: str) -> str:
    """What the page may load and where it may send: its own script, its own server."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _file(name: str) -> str:
    return (resources.files("sake_jax.play") / "web" / name).read_text(encoding="utf-8")
