# Speed, side by side: pumice to pumice and rxe to rxe, each over a pair of interfaces of its own, in turns. The processors are
# emulated: only the ratios mean anything. With fewer than four of them two polling programs leave rxe's kernel threads none.
# shellcheck shell=bash
network rxe
network pumice
# The limit that `pumice doctor` recommends: a receiver's socket bounds what is on its way. rxe has no such limit.
echo 4194304 >/proc/sys/net/core/rmem_max
rounds=5
[[ $extent == full ]] || rounds=1
(($(nproc) >= 4)) || printf '      only %s processors: rxe suffers, use --smp 4\n' "$(nproc)"

# figure FIELD COMMAND...: of one run, between $server and $client; adds it to /tmp/speed.WHO.
figure() {
    local field=$1 who=$2 server=$3 client=$4
    shift 4
    between "$server" "$client" "$row" "$*" "$@" -F -d @DEVICE -x @GID >/tmp/speed.said || {
        cat /tmp/speed.said
        return
    }
    awk -v field="$field" '{ print $field }' <<<"$result" >>"/tmp/speed.$who"
}

median() { sort -g "/tmp/speed.$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

# side_by_side bandwidth|latency COMMAND...
side_by_side() {
    local what=$1 field=4 round pumice rxe ratio wanted
    shift
    [[ $what == bandwidth ]] || field=5
    rm -f /tmp/speed.pumice /tmp/speed.rxe
    for ((round = 0; round < rounds; round++)); do
        figure $field pumice left right "$@"
        figure $field rxe rxe1 rxe2 "$@"
    done
    # The runs are not scenarios.
    passed=$((passed - 2 * rounds))
    pumice=$(median pumice)
    rxe=$(median rxe)
    ratio=$(awk -v a="$pumice" -v b="$rxe" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print 0 }')
    if [[ $what == bandwidth ]]; then
        wanted=$(awk -v r="$ratio" 'BEGIN { print (r >= 2) }')
        what='MiB/s, 2 wanted'
    else
        wanted=$(awk -v r="$ratio" 'BEGIN { print (r > 0 && r <= 0.7) }')
        what='us, 0.7 wanted'
    fi
    local line="$*   pumice $pumice, rxe $rxe $what: $ratio times, medians of $rounds"
    if [[ $wanted == 1 ]]; then pass "$line"; else fail "$line" /dev/null; fi
}

row='^ *[0-9]+ +[0-9]+ +[0-9.]+ '
side_by_side bandwidth ib_write_bw -s 1048576 -n 100
side_by_side bandwidth ib_read_bw -s 65536 -n 800
side_by_side bandwidth ib_send_bw -s 65536 -n 800
side_by_side latency ib_send_lat -n 500
side_by_side latency ib_write_lat -n 500
