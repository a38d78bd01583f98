# UCX over two rails while something happens to one of them (docs/devices.md says why UCX does what it does). The receiver of a
# large message reads it, so it is the receiver's device that something happens to. Sourced by rails.
# shellcheck shell=bash

# The receiver repeats a packet that was not acknowledged after 134 ms, and seven times.
ucx_words=(env UCX_TLS=rc_v,self UCX_RC_TIMEOUT=100ms ucx_perftest -t tag_bw -n 400 -w 5 -s 4194304)

# ucx_ends FAULT: the receiver with this fault, and the sender. Sets `out`, `receiver` and `sender`, the processes.
ucx_ends() {
    next_addresses
    out=$logs/$number
    timeout "$limit_seconds" "$pumice" run --addr "$one" --log warn --fault "$1" -- "${ucx_words[@]}" -p "$port" >"$out.receiver" 2>&1 &
    receiver=$!
    until listening "$port" || ! kill -0 "$receiver" 2>/dev/null; do nap; done
    timeout "$limit_seconds" "$pumice" run --addr "$one" --log warn -- "${ucx_words[@]}" -p "$port" 127.0.0.1 >"$out.sender" 2>&1 &
    sender=$!
}

# ucx_short KIND: for 300 ms. Both ends repeat what was lost and complete.
ucx_short() {
    local name="UCX over two rails, $1 for 300 ms on one of them" status=0
    ucx_ends "event kind=$1 device=pumice1 message=20 time=300ms"
    wait "$sender" || status=$?
    [[ $status == 0 ]] || kill "$receiver" 2>/dev/null || true
    wait "$receiver" || status="$status, receiver $?"
    if [[ $status == 0 ]] && grep -q "has $1 .*happen before read of message 20" "$out.receiver"; then
        pass "$name   $(grep '^Final:' "$out.sender" | tr -s ' ')"
    else
        fail "$name (status $status)" "$out.receiver" "$out.sender"
    fi
}

# ucx_aborts KIND WORDS: for ever. UCX 1.13 has no way around it without error handling (-e): the receiver ends by SIGABRT and with
# these words. The sender waits for the receiver's word that it has read the message. In most runs it has nothing in flight that could
# fail, which is what its device says of it, and it does not look at the TCP connection meanwhile. If the receiver ended before it
# acknowledged all that the sender had sent, that fails after seven repetitions, and the sender ends in the same way.
ucx_aborts() {
    local name="UCX over two rails, $1 on one of them: the receiver says so" status=0 sender_status='' sender_does=''
    ucx_ends "event kind=$1 device=pumice1 message=20"
    # Bash would say on standard error that it aborted.
    wait "$receiver" 2>/dev/null || status=$?
    if [[ $status == 134 ]] && grep -q "$2" "$out.receiver"; then
        until sender_does=$(outstanding) || ! kill -0 "$sender" 2>/dev/null; do nap; done
    fi
    if [[ -n $sender_does ]]; then
        sender_does="waits with nothing in flight   $sender_does"
        kill "$sender" 2>/dev/null || true
    fi
    [[ $status == 134 ]] || kill "$sender" 2>/dev/null || true
    wait "$sender" 2>/dev/null || sender_status=$?
    if [[ -z $sender_does && $sender_status == 134 ]] && grep -q 'send completion with error: transport retry counter exceeded' "$out.sender"; then
        sender_does='had a message in flight, and aborts as well'
    fi
    if [[ -n $sender_does ]]; then
        pass "$name, and the sender $sender_does"
    else
        "$pumice" stat >"$out.stat" 2>&1 || true
        fail "$name (status $status, sender $sender_status)" "$out.receiver" "$out.sender" "$out.stat"
    fi
}

# outstanding: what `pumice stat` says of the sends of the process that is left on this pair's addresses; false while any is not ended.
outstanding() {
    "$pumice" stat 2>/dev/null | awk '
        /queue pair .* of [0-9]+ sends ended/ {
            for (i = 1; i < NF; i++) if ($(i + 1) == "of" && $(i + 3) == "sends") { ended += $i; sent += $(i + 2); pairs++; break }
        }
        END { if (!pairs || !sent || ended != sent) exit 1; printf "%d of %d sends ended on %d queue pairs", ended, sent, pairs }'
}
