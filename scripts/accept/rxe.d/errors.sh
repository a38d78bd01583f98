# What goes wrong on purpose, between pumice and rxe and between two rxe: both sides must see the same. Differences that are
# meant are listed with their reason.
# shellcheck shell=bash
network rxe

scenarios=write-beyond,write-without-key,read-without-key,read-not-allowed,send-too-long,receive-without-key,no-receive
scenarios+=,late-receive,no-peer,wrong-qkey
# scenario:side:what pumice does otherwise:why.
meant=(
    "send-too-long:responder:local length error, Work Request Flushed Error, ERR:the buffer was too short, and its owner is told so"
    "send-too-long:requester:remote invalid request error, Work Request Flushed Error, ERR:the receiver did nothing wrong"
    "receive-without-key:responder:local protection error, ERR:the key was wrong, not the queue pair"
)

# seen SERVER CLIENT: what each side saw, as SCENARIO<tab>REQUESTER<tab>RESPONDER.
seen() {
    unjudged checked "$1" "$2" "$scenarios"
    sed -n 's/^ok \([^ ]*\) requester: \(.*\); responder: \(.*\)$/\1\t\2\t\3/p' "/share/out/$number.client"
}
seen rxe1 rxe2 >/tmp/both-rxe
seen rxe pumice >/tmp/pumice-requests
seen pumice rxe >/tmp/rxe-requests

# told FILE SCENARIO SIDE
told() {
    local field=2
    [[ $3 == requester ]] || field=3
    awk -F '\t' -v scenario="$2" -v field=$field '$1 == scenario { print $field }' "$1"
}

# same SCENARIO FILE SIDE WHO. Events of pumice's (`local access violation`, `invalid request`) are those of the specification;
# rxe raises none, and they are not compared.
same() {
    local got wanted why entry
    got=$(told "$2" "$1" "$3")
    wanted=$(told /tmp/both-rxe "$1" "$3")
    printf '      %-20s %-9s %-6s %s\n' "$1" "$3" "$4" "$got"
    [[ -n $got ]] || return 1
    got=$(sed 's/, \(local access violation\|invalid request local\) work queue error$//' <<<"$got")
    [[ $got != "$wanted" ]] || return 0
    for entry in "${meant[@]}"; do
        # What the responder does decides what the requester sees.
        if [[ $entry == "$1:$3:$got:"* && $2 == /tmp/rxe-requests ]]; then
            why=${entry##*:}
            printf '      %-20s %-9s %-6s meant: %s\n' '' '' '' "$why"
            return 0
        fi
    done
    printf '      %-20s %-9s %-6s %s\n' '' '' 'rxe' "$wanted"
    return 1
}

for scenario in ${scenarios//,/ }; do
    printf '      %-20s requester rxe2   %s\n' "$scenario" "$(told /tmp/both-rxe "$scenario" requester)"
    printf '      %-20s responder rxe1   %s\n' "$scenario" "$(told /tmp/both-rxe "$scenario" responder)"
    wrong=0
    same "$scenario" /tmp/pumice-requests requester pumice || wrong=1
    same "$scenario" /tmp/pumice-requests responder rxe || wrong=1
    same "$scenario" /tmp/rxe-requests requester rxe || wrong=1
    same "$scenario" /tmp/rxe-requests responder pumice || wrong=1
    if ((wrong == 0)); then
        pass "$scenario   as between two rxe"
    else
        fail "$scenario is not as between two rxe" /dev/null
    fi
done

# rdma_rxe takes seven retries for ever; pumice takes them for seven.
checked rxe pumice stuck-peer
