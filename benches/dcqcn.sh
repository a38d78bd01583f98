#!/bin/sh
# Draws the curves of docs/congestion.md: two flows, incasts of 3, 8 and 20 senders, in virtual time.
# The pictures and the table are the same on each machine. Takes about a minute.
set -eu
cd "$(dirname "$0")/.."
exec cargo run --quiet -p pumice-device --example dcqcn -- "${1:-docs/pictures}"
