"""zstd, loaded when something is compressed: many short-lived processes never need it.

The package `zstandard` imports `platform` and `typing` before its C extension, which needs neither: together a third of
the time of a bare process. So the extension is loaded by itself; where there is none, the package decides.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PACKAGE, _EXTENSION = "zstandard", "zstandard.backend_c"


def zstd() -> Any:
    """The classes and constants of `zstandard`."""
    global _loaded  # noqa: PLW0603  # loaded once per process
    if _loaded is None:
        _loaded = sys.modules.get(_PACKAGE) or _extension() or __import__(_PACKAGE)
    return _loaded


def _extension() -> Any:
    """The C extension, without its package; None if this installation has none."""
    # What `importlib.machinery` has, without the package around it.
    from _frozen_importlib_external import ExtensionFileLoader, PathFinder

    package = PathFinder.find_spec(_PACKAGE)
    spec = PathFinder.find_spec(_EXTENSION, package.submodule_search_locations) if package is not None else None
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return module


_loaded: Any = None
