#!/usr/bin/env bash
# Where people work: the files for VS Code, a container to work in, cargo nextest, pytest, mpirun and Slurm do what their pages
# say (docs/editors.md, docs/rust.md, docs/deploy/mpi, verbs/python).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PUMICE_PYTHON:-python3}
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/pumice
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
PUMICE_EXECUTABLE=$PUMICE PYTHONPATH=$PWD/verbs/python PYTEST_PLUGINS=pumice.pytest_plugin PYTHONDONTWRITEBYTECODE=1 \
    "$python" -m pytest -q -p no:cacheprovider --rootdir verbs/python verbs/python/tests
"$python" scripts/checks/workplaces.py "$PUMICE" "$place"
