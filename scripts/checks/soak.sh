#!/usr/bin/env bash
# A minute of the random-kill soak: see scripts/soak.
exec "$(dirname "${BASH_SOURCE[0]}")/../soak" 60
