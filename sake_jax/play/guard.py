"""Who may ask: people at this machine, or who know the token; never other web pages.

A browser lets any page send requests to this machine. It says so, in headers that a page cannot
forge: `Sec-Fetch-Site` and `Origin` where the request comes from another page, and `Host` where a
stranger's name was made to point here (DNS rebinding).
"""

import hmac
import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

WELCOME_SITES = ("same-origin", "none")
"""Of `Sec-Fetch-Site`: the page itself, and an address that somebody typed or opened."""


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own, which no other machine reaches.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def refusal(headers: Mapping[str, str], given: str | None, token: str | None) -> str | None:
    """Why a request is not answered, or None.

    >>> refusal({"Host": "localhost:8170"}, None, None)
    >>> refusal({"Host": "rebound.example:8170"}, None, None)
    'play answers to its own address only, got Host rebound.example:8170; open the printed one.'

    Args:
      headers: of the request, with capitals as in "Sec-Fetch-Site".
      given: the token in its address.
      token: the one it must have; None where only this machine can ask at all.
    """
    host = headers.get("Host", "")
    if token is None and not is_loopback(_split(f"//{host}").hostname or ""):
        return f"play answers to its own address only, got Host {host}; open the printed one."
    origin = headers.get("Origin")
    site = headers.get("Sec-Fetch-Site", "none")
    if (origin is not None and _split(origin).netloc != host) or site not in WELCOME_SITES:
        return "play answers to its own page only, got a request of another; open the printed one."
    if token is not None and not hmac.compare_digest((given or "").encode(), token.encode()):
        return "play needs the token of the address that it printed, got another; copy all of it."
    return None


def _split(address: str) -> SplitResult:
    """The parts of an address; of what is none, nobody's."""
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "", "", "", "")
