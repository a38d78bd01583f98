#!/usr/bin/env bash
# The recipes of CONTRIBUTING.md work: each example in tests/recipes is applied to a copy of the sources, alone and with all
# others, and the copy is built with its tests, and keeps the rules of the architecture. What has been built of other packages
# is used again.
#
#   scripts/checks/recipes.sh        a line for each recipe
#   scripts/checks/recipes.sh apply  only whether each example applies: a second, and nothing is built
#   PUMICE_RECIPE_TESTS=yes          runs the tests of the examples as well, which the recipes name behind "its test:"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# examples_apply PATCH...: in the folder where this runs.
examples_apply() {
    local failed=0 patch name
    for patch; do
        name=$(basename "$patch" .patch)
        git apply --check "$patch" || {
            failed=1
            printf 'recipe %s: FAILED: its example does not apply. Apply it by hand (git apply --3way tests/recipes/%s.patch), correct it, %s\n' \
                "$name" "$name" "and write it anew: git diff HEAD -U2 >tests/recipes/$name.patch"
        }
    done
    return "$failed"
}

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target_dir CARGO_INCREMENTAL=0
place=$target_dir/recipes
patches=("$PWD"/tests/recipes/*.patch)
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    echo "recipes: there is no git here, which says which files belong to the sources"
    exit 77
fi
if [[ ${1:-} == apply ]]; then
    examples_apply "${patches[@]}"
    exit
fi

# What git keeps or would keep, as it stands in the working tree.
rm -rf "$place"
mkdir -p "$place"
trap 'rm -rf "$place"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [[ ! -e $file && ! -L $file ]] || printf '%s\0' "$file"
done | tar --null --files-from=- --create | tar --extract --touch --directory "$place"
cd "$place"
# Cargo takes the crates of two workspaces with one target folder for the same ones, unless another program compiles them.
# shellcheck disable=SC2016
printf '#!/bin/sh\nexec "$@"\n' >"$target_dir/recipes-rustc"
chmod +x "$target_dir/recipes-rustc"
export RUSTC_WORKSPACE_WRAPPER=$target_dir/recipes-rustc
# The copy may lie in the repository, and paths of patches would be those of the repository then.
export GIT_CEILING_DIRECTORIES=$target_dir

examples_apply "${patches[@]}"
for patch in "${patches[@]}"; do
    git apply "$patch" || {
        printf 'recipe %s: FAILED: its example changes lines beside those of another: give one of them another place\n' \
            "$(basename "$patch" .patch)"
        exit 1
    }
done

# The files of an example that the compiler complains about.
complaints=$target_dir/recipes.log
if ! cargo check --quiet --locked --workspace --all-targets 2>"$complaints"; then
    cat "$complaints" >&2
    for patch in "${patches[@]}"; do
        sed -n 's/^+++ b\///p' "$patch" | while IFS= read -r file; do
            ! grep -qF -- "--> $file:" "$complaints" ||
                printf 'recipe %s: FAILED: its example, or one beside it, breaks %s\n' "$(basename "$patch" .patch)" "$file"
        done
    done
    echo "recipes: the examples do not build"
    exit 1
fi

# The rules of the architecture hold with them, which ask git for some files.
git init --quiet && git add --all
rustc -O --edition 2024 --test tests/floors.rs -o "$target_dir/recipes-floors"
CARGO_MANIFEST_DIR=$place RUST_BACKTRACE=0 "$target_dir/recipes-floors" --quiet >"$complaints" 2>&1 || {
    cat "$complaints" >&2
    echo "recipes: the examples break a rule of the architecture"
    exit 1
}

if [[ ${PUMICE_RECIPE_TESTS:-} == yes ]]; then
    # One command for all of them, since each set of packages compiles others anew: the packages and targets of all, and the
    # names of the tests, of which each has to be among those that passed.
    mapfile -t commands < <(sed -nE 's/^Example: .*; its test: `cargo test (-p .*)`.*/\1/p' CONTRIBUTING.md)
    mapfile -t targets < <(printf '%s\n' "${commands[@]}" | sed -E 's/ [^ ]+$//; s/ --/\n--/' | sort -u | tr ' ' '\n')
    mapfile -t tests < <(printf '%s\n' "${commands[@]##* }")
    cargo test --locked "${targets[@]}" -- "${tests[@]}" >"$complaints" 2>&1 || {
        cat "$complaints" >&2
        echo "recipes: a test of the examples fails"
        exit 1
    }
    for test in "${tests[@]}"; do
        grep -qE "^test (.*::)?$test.* ok$" "$complaints" || {
            printf 'recipes: there is no test "%s", which CONTRIBUTING.md names for an example\n' "$test"
            exit 1
        }
    done
    printf 'recipes: %d tests of the examples passed\n' "${#tests[@]}"
fi
for patch in "${patches[@]}"; do printf 'recipe %s: applied and built\n' "$(basename "$patch" .patch)"; done
