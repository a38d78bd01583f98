# What tests/golden has captured between two rxe, done again with pumice on one side: the packets of each direction, in order, must
# be the same in opcode, PSN, flags, lengths, immediate data, operands, syndrome and MSN, and the messages of the connection manager
# in what they say; captured.awk has what is left out. Which of two directions was first is not compared, nor how many requests one
# acknowledgement covers where several are under way: each acknowledgement must be one of those captured.
#
# Not here: rc-loss, rc-reorder and rc-duplicate (made by chance; the group `faults` has their kind) and tool-srq_pingpong (several queue
# pairs at once).
# shellcheck shell=bash
source /share/scenarios/by-address.sh

# What is between two marks belongs together. rxe and pumice drop them.
marks=0
mark() {
    local before=-1 now
    until now=$(cat /sys/class/net/w0/statistics/[rt]x_packets) && [[ $now == "$before" ]]; do
        before=$now
        sleep 0.3
    done
    marks=$((marks + 1))
    echo mark >/dev/udp/"$pumice_address"/4791
}

# SERVER:NAME: which mark it begins at.
declare -A place

# again NAME COMMAND...: if there is such a capture of this kernel.
again() {
    local name=$1
    shift
    [[ -e /share/golden/$name.pcap ]] || return 0
    mark
    unjudged "$@" || {
        fail "$server < $client  $name" /tmp/unjudged
        return 0
    }
    place[$server:$name]=$marks
}

# Of tests/interop, by its name.
scenario() { again "$1" checked "$server" "$client" "$1"; }
scenario_v6() { v6=yes again "ipv6-$1" checked "$server" "$client" "$1"; }

# A pair of programs that takes a port of its own, and is connected over TCP.
pair() {
    local name=$1
    shift
    again "$name" between "$server" "$client" . "$name" "$@"
}

# A pair of programs that is connected by address: what counts is the try that was not too early.
by_address() {
    local name=$1
    shift
    before_each_try=mark again "$name" connected "$server" "$client" "$@"
}

# nobody_listens NAME WANTED COMMAND...: the connection manager is there and refuses.
nobody_listens() {
    local name=$1
    shift
    again "$name" refused "$@"
}
refused() {
    local wanted=$1 process namespace in=()
    shift
    side "$server" rping -s -a "$(address_of "$server")" -p 7999 >/dev/null 2>&1 &
    process=$!
    namespace=$(namespace_of "$server")
    [[ -z $namespace ]] || in=(ip netns exec "$namespace")
    # Port 4791: the device is there.
    until "${in[@]}" grep -q ':12B7 ' /proc/net/udp || ! kill -0 "$process" 2>/dev/null; do sleep 0.1; done
    mark
    side "$client" "$@" >/tmp/refused 2>&1
    kill "$process"
    wait "$process"
    grep -q "$wanted" /tmp/refused || fail refused /tmp/refused
}

everything_captured() {
    local name
    for name in rc-send rc-write rc-write-tclass rc-read rc-atomic rc-atomic-write rc-flush rc-flush-noaccess rc-burst rc-psn-wrap rc-rnr \
        rc-rnr-exhausted rc-nak-access-write rc-nak-access-read rc-nak-invalid-len rc-retry-exhausted rc-send-inv uc-send-write ud-send; do
        scenario "$name"
    done
    if [[ $extent == full ]]; then
        for name in rc-send rc-write rc-write-tclass rc-read rc-atomic ud-send; do scenario_v6 "$name"; done
        for name in rc uc ud; do
            pair "tool-${name}_pingpong" "ibv_${name}_pingpong" -d @DEVICE -g @GID -n 3 -s 100
        done
        for name in send write read; do
            pair "tool-${name}_bw" "ib_${name}_bw" -F -d @DEVICE -x @GID -n 6 -s 5000 -m 1024
        done
        pair tool-atomic_bw ib_atomic_bw -F -d @DEVICE -x @GID -n 6
    fi
    # Only pumice's: a sender to a group needs no receiver, and rxe alone would be compared with itself. Multicast leaves by the
    # interface that a route names.
    if [[ $client == pumice ]]; then
        ip -n peer route replace 239.0.0.0/8 dev w1
        again tool-mcast side "$client" mckey -m 239.1.2.3 -b "$pumice_address" -s -C 2
    fi
    # As captured, with the ports that the programs have of their own.
    by_address cm-rping 'ping data: rdma-ping-1' rping -s -a @SERVER -C 2 -v -- rping -c -a @SERVER -C 2 -v
    by_address cm-ucmatose 'return status 0' ucmatose -b @SERVER -C 2 -S 64 -- ucmatose -s @SERVER -C 2 -S 64
    by_address cm-udaddy 'return status 0' udaddy -b @SERVER -C 2 -S 64 -- udaddy -s @SERVER -C 2 -S 64
    nobody_listens cm-reject-no-listener REJECTED rping -c -a "$(address_of "$server")" -C 1 -v
    nobody_listens cm-sidr-reject UNREACHABLE udaddy -s "$(address_of "$server")" -C 1
    mark
}

# How a capture is compared: see captured.awk; `acks`: acknowledgements may cover several requests. A packet that is the same as one
# before it does not count, because a machine that is slow for a moment makes either side repeat what it sent; how often a packet
# is repeated is what the two scenarios of exhausted retries are about.
ways() {
    case $1 in
    rc-retry-exhausted | rc-rnr-exhausted) ;;
    rc-burst | rc-psn-wrap) echo 'once acks' ;;
    cm-* | tool-*) echo 'once acks own_numbers' ;;
    *) echo 'once' ;;
    esac
}

# What is meant to be otherwise: NAME, the side of pumice, an expression of sed, and why.
meant=(
    "cm-*|client|s/timeout 19/timeout 17/|Linux 6.1 asks for four times the timeout of 6.12, and pumice for that of 6.12"
    "rc-nak-invalid-len|server|s/NAK, remote operational error/NAK, invalid request/|the receiver did nothing wrong: NAK 0x61, not 0x63"
)

# reduced CAPTURE REQUESTER PART WAY...
reduced() {
    local capture=$1 requester=$2 part=$3 way variables=()
    shift 3
    for way in "$@"; do variables+=(-v "$way=1"); done
    /tmp/pumice/pumice capture "$capture" |
        awk -v requester="$requester" -v part="$part" "${variables[@]}" -f /share/scenarios/captured.awk | sort -s -k 1,1
}

# acknowledged GOLDEN OURS: each acknowledgement of ours is one of the golden ones, and the last ones are the same; then they are left out
# of both.
positive='^[a-z]* RC_ACKNOWLEDGE .* ACK msn'
acknowledged() {
    local who
    grep -E "$positive" "$1" >/tmp/golden-acks
    grep -E "$positive" "$2" >/tmp/our-acks
    # What is printed here says what is wrong.
    ! grep -v -x -F -f /tmp/golden-acks /tmp/our-acks || return 1
    for who in requester responder; do
        grep "^$who" /tmp/golden-acks | tail -n 1 >/tmp/last-golden-ack
        grep "^$who" /tmp/our-acks | tail -n 1 >/tmp/last-of-our-acks
        diff /tmp/last-golden-ack /tmp/last-of-our-acks || return 1
    done
    sed -i -E "/$positive/d" "$1" "$2"
}

compare() {
    local name=$1 golden_requester=10.9.0.2 requester v6="" how entry of side expression why meaning="" requests answers
    [[ $name != ipv6-* ]] || v6=yes golden_requester=fd00:9::2
    requester=$(address_of "$client")
    if [[ -n $v6 ]]; then
        requester=$rxe_v6
        [[ $client == rxe ]] || requester=$pumice_v6
    fi
    how=$(ways "$name")
    # shellcheck disable=SC2086 # several words
    reduced "/share/golden/$name.pcap" "$golden_requester" 0 ${how/acks/} >/tmp/golden
    # shellcheck disable=SC2086
    reduced "$capture" "$requester" "${place[$server:$name]}" ${how/acks/} >/tmp/ours
    for entry in "${meant[@]}"; do
        IFS='|' read -r of side expression why <<<"$entry"
        # shellcheck disable=SC2053 # a pattern
        [[ $name == $of && ${!side} == pumice ]] || continue
        cp /tmp/golden /tmp/golden-of-rxe
        sed -i "$expression" /tmp/golden
        cmp -s /tmp/golden /tmp/golden-of-rxe || meaning="; meant: $why"
    done
    requests=$(grep -c '^requester' /tmp/ours)
    answers=$(grep -c '^responder' /tmp/ours)
    if { [[ $how != *acks* ]] || acknowledged /tmp/golden /tmp/ours; } >/tmp/difference && ((requests > 0)) &&
        diff /tmp/golden /tmp/ours >>/tmp/difference; then
        pass "$server < $client  $name   $requests and $answers packets as captured between two rxe$meaning"
    else
        fail "$server < $client  $name is not as captured between two rxe (part ${place[$server:$name]} of $capture)" /tmp/difference
    fi
}

for server in rxe pumice; do
    client=pumice
    [[ $server == rxe ]] || client=rxe
    marks=0
    record "captures-$server-serves" everything_captured
    capture=/share/out/captures-$server-serves.pcap
    for file in /share/golden/*.pcap; do
        name=$(basename "$file" .pcap)
        [[ -z ${place[$server:$name]:-} ]] || compare "$name"
    done
done
