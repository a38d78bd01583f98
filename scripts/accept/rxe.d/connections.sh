# Connections by address, librdmacm's: the kernel's connection manager and rdma_cm on one side, pumice's on the other. All programs are
# Debian's, unmodified.
# shellcheck shell=bash
source /share/scenarios/by-address.sh

# tested WANTED PROGRAM OPTION...: perftest's -R, both ways. It connects twice, and its server closes its listener in between; a client
# that is faster is turned away, and dies of its own way to try again. So what fails is done again from the start, twice.
tested() {
    local wanted=$1 server client attempt
    shift
    for server in rxe pumice; do
        client=pumice
        [[ $server == rxe ]] || client=rxe
        for attempt in 1 2 3; do
            too_early='unexpected CM event' head_start=1 limit_seconds=30 connected "$server" "$client" "$wanted" \
                "$@" -R -F -p @PORT -- "$@" -R -F -p @PORT @SERVER >/tmp/tested
            grep -q '^FAIL' /tmp/tested && ((attempt < 3)) || break
            failed=$((failed - 1))
        done
        cat /tmp/tested
    done
}

both 'rdma-ping-9:' rping -s -C 10 -v -p @PORT -- rping -c -a @SERVER -C 10 -v -p @PORT
both 'return status 0' ucmatose -p @PORT -- ucmatose -s @SERVER -p @PORT
# It knows no other port than its own.
both 'return status 0' udaddy -- udaddy -s @SERVER
row='^ *[0-9]+ +[0-9]+ +[0-9.]+ '
if [[ $extent == full ]]; then
    tested "$row" ib_send_bw -s 4096 -n 100
    both '.*' rping -s -C 200 -V -S 4096 -p @PORT -- rping -c -a @SERVER -C 200 -V -S 4096 -p @PORT
    both 'return status 0' ucmatose -c 20 -C 10 -S 1000 -p @PORT -- ucmatose -c 20 -C 10 -S 1000 -s @SERVER -p @PORT
    both 'return status 0' ucmatose -m -p @PORT -- ucmatose -m -s @SERVER -p @PORT
    both 'rdma_client: end 0' rdma_server -p @PORT -- rdma_client -s @SERVER -p @PORT
    both 'return status 0' udaddy -c 10 -C 20 -- udaddy -c 10 -C 20 -s @SERVER
    # rsockets: streams, with what arrives compared.
    for program in rstream riostream; do
        both '^custom ' "$program" -b @SERVER -p @PORT -T b -T v -S 5001 -C 50 -- "$program" -s @SERVER -p @PORT -T b -T v -S 5001 -C 50
    done
    for test in ib_write_bw ib_read_bw ib_send_lat; do
        tested "$row" "$test" -s 4096 -n 100
    done
fi

[[ $extent == full ]] || return 0

# cmtime, side by side. Between two rxe its second half, which has no queue pairs, is refused now and then: the first counts.
network rxe
network pumice
rounds=9

# connect_time SERVER CLIENT FILE: the time that connecting took, in the unit of this cmtime.
connect_time() {
    local server=$1 client=$2 tries=0 process took=""
    number=$((number + 1))
    connection_port=$((connection_port + 1))
    out=/share/out/$number
    limit_seconds=60 side "$server" cmtime -c 100 -p "$connection_port" >"$out.server" 2>&1 &
    process=$!
    while [[ -z $took ]] && ((tries++ < asks_again)); do
        sleep 0.3
        limit_seconds=60 side "$client" cmtime -c 100 -p "$connection_port" -s "$(address_of "$server")" >"$out.client" 2>&1
        took=$(sed -n -E 's/^(full )?connect *:? +([0-9.]+) .*/\2/p' "$out.client" | head -n 1)
    done
    kill "$process" 2>/dev/null
    wait "$process"
    [[ -z $took ]] || echo "$took" >>"$3"
}

rm -f /tmp/cmtime.*
for ((round = 0; round < rounds; round++)); do
    connect_time left right /tmp/cmtime.pumice
    connect_time rxe1 rxe2 /tmp/cmtime.rxe
done
middle() { sort -g "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
ours=$(middle /tmp/cmtime.pumice)
theirs=$(middle /tmp/cmtime.rxe)
line="cmtime -c 100, connecting   pumice $ours, rxe $theirs: $(awk -v a="$ours" -v b="$theirs" 'BEGIN { if (b > 0) printf "%.2f", a / b }') times, medians of $(wc -l </tmp/cmtime.pumice) and $(wc -l </tmp/cmtime.rxe)"
if awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a > 0 && b > 0 && a <= b) }'; then
    pass "$line"
else
    fail "$line" "$out.client"
fi
