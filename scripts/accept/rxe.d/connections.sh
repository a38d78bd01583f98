# Connections by address, librdmacm's: the kernel's connection manager and rdma_cm on one side, pumice's on the other. All programs are
# Debian's, unmodified.
# shellcheck shell=bash

# Nothing in /proc tells that somebody listens for connections: whoever is too early is told so, and asks again.
asks_again=40
connection_port=7000

# connected SERVER CLIENT WANTED SERVER-COMMAND -- CLIENT-COMMAND: one of the two prints WANTED, and both end well. @SERVER is the
# server's address, @PORT a port of its own. `endless`: the server only ends when told to. Sets `out`.
endless=
connected() {
    local server=$1 client=$2 wanted=$3 tries=0 status=0 process server_status=0 address words=() server_words=()
    shift 3
    number=$((number + 1))
    connection_port=$((connection_port + 1))
    address=$(address_of "$server")
    out=/share/out/$number
    words=("${@//@PORT/$connection_port}")
    words=("${words[@]//@SERVER/$address}")
    while [[ ${words[0]} != -- ]]; do
        server_words+=("${words[0]}")
        words=("${words[@]:1}")
    done
    words=("${words[@]:1}")
    side "$server" "${server_words[@]}" >"$out.server" 2>&1 &
    process=$!
    while :; do
        status=0
        side "$client" "${words[@]}" >"$out.client" 2>&1 || status=$?
        [[ $status != 0 ]] && ((tries++ < asks_again)) && kill -0 "$process" 2>/dev/null || break
        grep -q -i -E 'reject|refused|unreachable|unexpected CM event|connect error' "$out.client" || break
        sleep 0.2
    done
    if [[ $status != 0 || -n $endless ]]; then kill "$process" 2>/dev/null; fi
    wait "$process" || server_status=$?
    [[ -n $endless || $server_status == 0 ]] || status="$status, server $server_status"
    result=$(grep -h -E -- "$wanted" "$out.client" "$out.server" | tail -n 1)
    local label="$server < $client  ${words[*]}"
    if [[ $status == 0 && -n $result ]]; then
        pass "$label   $(tr -s ' \t' ' ' <<<"$result")"
    else
        fail "$label (status $status; $out)" "$out.server" "$out.client"
    fi
}

# both WANTED SERVER-COMMAND -- CLIENT-COMMAND: both ways.
both() {
    connected rxe pumice "$@"
    connected pumice rxe "$@"
}

both 'rdma-ping-9:' rping -s -C 10 -v -p @PORT -- rping -c -a @SERVER -C 10 -v -p @PORT
both 'return status 0' ucmatose -p @PORT -- ucmatose -s @SERVER -p @PORT
# It knows no other port than its own.
both 'return status 0' udaddy -- udaddy -s @SERVER
row='^ *[0-9]+ +[0-9]+ +[0-9.]+ '
both "$row" ib_send_bw -R -F -s 4096 -n 100 -p @PORT -- ib_send_bw -R -F -s 4096 -n 100 -p @PORT @SERVER
if [[ $extent == full ]]; then
    both '.*' rping -s -C 200 -V -S 4096 -p @PORT -- rping -c -a @SERVER -C 200 -V -S 4096 -p @PORT
    both 'return status 0' ucmatose -c 20 -C 10 -S 1000 -p @PORT -- ucmatose -c 20 -C 10 -S 1000 -s @SERVER -p @PORT
    both 'return status 0' ucmatose -m -p @PORT -- ucmatose -m -s @SERVER -p @PORT
    both 'rdma_client: end 0' rdma_server -p @PORT -- rdma_client -s @SERVER -p @PORT
    both 'return status 0' udaddy -c 10 -C 20 -- udaddy -c 10 -C 20 -s @SERVER
    for test in ib_write_bw ib_read_bw ib_send_lat; do
        both "$row" "$test" -R -F -s 4096 -n 100 -p @PORT -- "$test" -R -F -s 4096 -n 100 -p @PORT @SERVER
    done
fi
