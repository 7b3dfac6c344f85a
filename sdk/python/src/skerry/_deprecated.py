"""Warnings of routes that the server calls deprecated."""

from __future__ import annotations

import warnings

import httpx

MAX_WARNED = 1000
"""How many routes are remembered."""

_warned: set[str] = set()


def warn(response: httpx.Response) -> None:
    """Warns once of a route that the server calls deprecated (RFC 9745). Its header Link names the route."""
    if "Deprecation" not in response.headers:
        return
    request, link, sunset = response.request, response.headers.get("Link", ""), response.headers.get("Sunset")
    route = link or request.method
    if route in _warned or len(_warned) >= MAX_WARNED:
        return
    _warned.add(route)
    text = f"the server deprecates {request.method} {request.url.path}"
    if sunset:
        text += f", which may be gone from {sunset} on"
    if link:
        text += f": {link}"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
