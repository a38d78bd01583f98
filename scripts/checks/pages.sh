#!/usr/bin/env bash
# The pages keep their promises to readers: lengths, the sidebar, groups of the help, time and needs of recipes, commands that can
# be run, names of packages, and questions of beginners two clicks from README.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/pumice
fi
python3 scripts/checks/pages.py "$PUMICE"
