#!/usr/bin/env bash
# Statement 4: packets on a real wire carry the IPv4 identification their ICRC was made with, also when the
# kernel cuts a segmentation-offload batch. Two network namespaces, a veth pair that cannot segment in
# "hardware", tcpdump on it, and two judges: our own decoder with the full IP header, and scapy.
# Statement 4 of tests/statements.tsv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -z ${PUMICE:-} ]]; then
    cargo build --quiet
    PUMICE=${CARGO_TARGET_DIR:-target}/debug/pumice
fi
pumice=$PUMICE

if [[ $(id -u) != 0 ]]; then
    echo "SKIPPED: wire-ids needs root for network namespaces and tcpdump"
    exit 0
fi
export PATH=$PATH:/usr/sbin:/sbin
for tool in ip tcpdump ethtool; do
    command -v "$tool" >/dev/null && continue
    package=$tool
    [[ $tool == ip ]] && package=iproute2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 || {
        echo "SKIPPED: wire-ids needs $package and could not install it"
        exit 0
    }
done

a=pumice-ids-a-$$
b=pumice-ids-b-$$
work=$(mktemp -d)
server=
sniffer=
cleanup() {
    local pid
    for pid in $server $sniffer; do
        kill "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

if ! ip netns add "$a" 2>/dev/null; then
    echo "SKIPPED: this machine allows no network namespaces"
    exit 0
fi
ip netns add "$b"
ip -n "$a" link add veth-a mtu 1500 type veth peer name veth-b mtu 1500 netns "$b"
for end in a b; do
    namespace=${!end}
    ip -n "$namespace" link set lo up
    ip -n "$namespace" link set "veth-$end" up
    ip netns exec "$namespace" ethtool -K "veth-$end" tx-udp-segmentation off gro off >/dev/null 2>&1
done
ip -n "$a" addr add 10.77.0.1/24 dev veth-a
ip -n "$b" addr add 10.77.0.2/24 dev veth-b

ip netns exec "$a" tcpdump -i veth-a -U --immediate-mode -s 0 -w "$work/wire.pcap" udp port 4791 2>"$work/tcpdump.log" &
sniffer=$!
until grep -q "listening on" "$work/tcpdump.log"; do
    kill -0 "$sniffer" 2>/dev/null || { cat "$work/tcpdump.log" >&2; exit 1; }
done

ip netns exec "$b" "$pumice" perf server --addr 10.77.0.2 >"$work/server.log" 2>&1 &
server=$!
until grep -q serving "$work/server.log"; do
    kill -0 "$server" 2>/dev/null || { cat "$work/server.log" >&2; exit 1; }
done
ip netns exec "$a" "$pumice" perf client 10.77.0.2 --addr 10.77.0.1 --op write --size 64K --mtu 1024 \
    --rounds 1 --duration 0.05 --verify >"$work/client.log" 2>&1 || { cat "$work"/*.log >&2; exit 1; }
kill "$sniffer"
wait "$sniffer" 2>/dev/null || true
sniffer=

summary=$("$pumice" capture --summary "$work/wire.pcap") || {
    echo "FAIL wire-ids: $summary" >&2
    exit 1
}
echo "$summary"
# Packets that follow the first of a cut batch have identifications above 0: there must be some.
later=$(tcpdump -r "$work/wire.pcap" -v 2>/dev/null | grep -c ' id [1-9]') || later=0
echo "packets with an identification above 0: $later"
((later > 0)) || { echo "FAIL wire-ids: no batch was cut on the way" >&2; exit 1; }
scripts/checks/scapy-icrc.sh "$work/wire.pcap"
