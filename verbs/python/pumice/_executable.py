"""Where the program `pumice` is."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_NAME = "pumice"


class PumiceNotFound(FileNotFoundError):
    """The program `pumice` is neither where the wheel was installed nor in PATH."""


def executable() -> Path:
    """The program `pumice`: the one that was installed with this module, else the first one in PATH.

    The environment variable PUMICE_EXECUTABLE names another one.

    Raises PumiceNotFound if there is none.
    """
    chosen = os.environ.get("PUMICE_EXECUTABLE")
    if chosen:
        if not _is_program(Path(chosen)):
            raise PumiceNotFound(f"PUMICE_EXECUTABLE is {chosen}, which is no program: unset it, or correct it")
        return Path(chosen)
    for place in _places():
        if _is_program(place):
            return place
    in_path = shutil.which(_NAME)
    if in_path is None:
        raise PumiceNotFound(
            f"the program {_NAME} is neither installed with the module {Path(__file__).parent} nor in PATH: "
            "install the wheel again, with pip install --force-reinstall"
        )
    return Path(in_path)


def _places() -> Iterator[Path]:
    """Where installers put the programs of wheels, the most certain place first."""
    # The installer's own list of the files that it installed.
    try:
        files = importlib.metadata.distribution(_NAME).files or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == _NAME and file.parent.name in ("bin", "scripts"):
            yield Path(str(file.locate())).resolve()
    yield Path(sysconfig.get_path("scripts")) / _NAME


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
