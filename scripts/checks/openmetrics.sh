#!/usr/bin/env bash
# Prometheus' own parsers (its Python client) read what pumice stat --listen says of a program that waits for its peer.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target_dir=${CARGO_TARGET_DIR:-target}
python=${PUMICE_PYTHON:-$target_dir/venv/bin/python3}
if ! "$python" -c 'import prometheus_client' 2>/dev/null; then
    echo "openmetrics: no Python with prometheus-client: python3 -m venv $target_dir/venv && $target_dir/venv/bin/pip install prometheus-client" >&2
    exit 1
fi
if ! command -v ibv_rc_pingpong >/dev/null; then
    echo "SKIPPED: openmetrics needs ibv_rc_pingpong: apt-get install ibverbs-utils"
    exit 0
fi
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$target_dir/debug/pumice
fi

work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work
pids=()
cleanup() {
    kill -KILL ${pids[@]+"${pids[@]}"} 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

address=127.$((140 + $$ % 40)).$((RANDOM % 250)).$((1 + $$ % 250))
"$PUMICE" run --addr "$address" --tag 'a "tag" \ of one' -- \
    ibv_rc_pingpong -d pumice0 -g 0 -p $((29000 + $$ % 1000)) >/dev/null &
pids+=($!)
mkfifo "$work/metrics"
"$PUMICE" stat --listen 127.0.0.1:0 --per-qp >"$work/metrics" &
pids+=($!)
read -r _ _ url <"$work/metrics"
end=$((SECONDS + 60))
until "$PUMICE" stat --json | grep -q '"state"'; do
    ((SECONDS < end)) || {
        echo "openmetrics: ibv_rc_pingpong did not begin within a minute" >&2
        exit 1
    }
    sleep 0.05
done
"$python" scripts/checks/openmetrics.py "$url"
