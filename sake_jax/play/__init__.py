"""A page to play with: texts being written with and without guidance, live, on this machine."""

from sake_jax.play.draft import Draft as Draft
from sake_jax.play.live import LiveRun as LiveRun
from sake_jax.play.server import PlayServer as PlayServer
from sake_jax.play.studio import Studio as Studio
