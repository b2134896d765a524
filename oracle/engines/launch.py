"""Runs an adapter in an environment of its own: `python launch.py MODULE:ATTRIBUTE` speaks the protocol over pipes.

It is run as a file by the environment's own Python. Only this package is made importable there, not the folder that it
lies in: that may be a `site-packages` whose other packages must not shadow the engine's.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

_OWN_FOLDER = Path(__file__).resolve().parent


def make_package_importable() -> None:
    """Makes `oracle` importable from where this file lies, and takes this file's own folder off the path."""
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _OWN_FOLDER]
    if "oracle" in sys.modules:
        return
    folder = _OWN_FOLDER.parent
    spec = importlib.util.spec_from_file_location(
        "oracle", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        message = f"no package lies in {folder}"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle"] = module
    spec.loader.exec_module(module)


def main(target: str) -> None:
    """Serves one adapter until standard input ends."""
    make_package_importable()
    sys.path.insert(0, str(Path.cwd()))
    serve_module = importlib.import_module("oracle.engines.serve")
    serve_module.serve_target(target)


if __name__ == "__main__":
    main(sys.argv[1])
