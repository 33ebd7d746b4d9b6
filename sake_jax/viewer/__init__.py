"""A recorded generation as one HTML page: what was written when, and where guidance pushed."""

from sake_jax.viewer.generations import recording_of as recording_of
from sake_jax.viewer.generations import render_generations as render_generations
from sake_jax.viewer.html_page import HtmlPage as HtmlPage
from sake_jax.viewer.html_page import render_page as render_page
from sake_jax.viewer.recording import Recording as Recording
