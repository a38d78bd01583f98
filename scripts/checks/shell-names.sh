#!/usr/bin/env bash
# No function of a script has a local variable with the name of a global variable: a trap that runs while the function is
# active would see the local one. scripts/test once counted the passed tests of the wrong file for this reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

found=0
while read -r script; do
    head -n 1 "$script" | grep -q 'bash\|/sh' || [[ $script == *.sh ]] || continue
    shadowed=$(awk '
        /^[a-zA-Z_][a-zA-Z_0-9]*=/ { split($0, part, "="); global[part[1]] = 1 }
        /^[ \t]+local / {
            for (i = 2; i <= NF; i++) {
                name = $i
                sub(/=.*/, "", name)
                if (name ~ /^[a-zA-Z_][a-zA-Z_0-9]*$/) local_at[name] = FNR
            }
        }
        END { for (name in local_at) if (name in global) print FILENAME ":" local_at[name] ": " name }' "$script")
    if [[ -n $shadowed ]]; then
        printf 'a local variable hides a global one: %s\n' "$shadowed"
        found=1
    fi
done < <(git ls-files scripts .ci)
exit "$found"
