#!/usr/bin/env bash
# The files for Kubernetes are what Kubernetes understands, and the device plugin is tried with a stand-in for the kubelet: it
# registers, and a program with what a container gets (a mount, variables) finds the device (docs/deploy/kubernetes, docs/deploy/cdi).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PUMICE_PYTHON:-python3}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=$target_dir/debug/pumice
fi
# A node has pumice as packages install it, with the links under which programs ask for libpumice.so.
node=$place/opt/pumice-0
mkdir -p "$node/bin" "$node/lib/pumice/pumice-links"
ln -s pumice-0 "$place/opt/pumice"
cp "$PUMICE" "$node/bin/"
for object in libpumice.so libpumice_sysfs.so; do
    # `cargo test` puts objects into deps only.
    newest=$(find "$target_dir/debug/$object" "$target_dir/debug/deps/$object" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1) || true
    [[ -z $newest ]] || cp "${newest#* }" "$node/lib/pumice/"
done
sed -n 's/^    "\(lib.*\.so.*\)",$/\1/p' src/run/library.rs | while IFS= read -r name; do
    ln -s ../libpumice.so "$node/lib/pumice/pumice-links/$name"
done
"$python" scripts/checks/kubernetes.py "$place"
