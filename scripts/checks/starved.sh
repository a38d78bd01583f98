#!/usr/bin/env bash
# Some runs of a ping-pong whose processes get no processor for long: see scripts/starved.
exec "$(dirname "${BASH_SOURCE[0]}")/../starved" 5 12
