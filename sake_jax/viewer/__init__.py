"""A recorded generation as one HTML page: what was written when, and where guidance pushed."""

from sake_jax.viewer.page import Page as Page
from sake_jax.viewer.page import page as page
from sake_jax.viewer.recording import Recording as Recording
from sake_jax.viewer.recording import recorded as recorded
