"""`python -m pumice COMMAND …` is `pumice COMMAND …`, also where PATH does not have it."""

from __future__ import annotations

import os
import sys

from ._executable import PumiceNotFound, executable

if __name__ == "__main__":
    try:
        path = executable()
    except PumiceNotFound as error:
        sys.exit(f"pumice: {error}")
    os.execv(path, [str(path), *sys.argv[1:]])
