"""Adapters say loudly what they are not tested with."""

from __future__ import annotations

import re
from importlib import metadata


def require(adapter: str, package: str, least: str, below: str) -> None:
    """Raises ImportError unless package is there in a version from least on and below below."""
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(
            f"{adapter} needs {package}>={least},<{below}: pip install '{adapter.replace('.', '[').replace('_', '-')}]'"
        ) from None
    if not numbers(least) <= numbers(version) < numbers(below):
        raise ImportError(f"{adapter} is tested with {package} from {least} to below {below}, and {version} is installed")


def numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(n) for n in found.group().split(".")) if found else ()
