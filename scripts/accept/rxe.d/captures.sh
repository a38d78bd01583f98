# What tests/golden has captured between two rxe, done again with pumice on one side: the packets of each direction, in order, must
# agree in opcode, PSN, flags, lengths, immediate data, operands, syndrome and MSN. Not compared: addresses, keys and queue pair
# numbers; the MigReq bit (rxe sends 0, hardware and pumice 1); credits (acknowledgements of rxe have none); how long anything took; which of two directions was first.
# shellcheck shell=bash

# fields CAPTURE REQUESTER: one line for each packet.
fields() {
    /tmp/pumice/pumice capture "$1" | sed -n -E "
        s/^ *[0-9.]+ +$2 > [^ ]+ +/request  /; t numbers
        s/^ *[0-9.]+ +10\.9\.0\.[12] > [^ ]+ +/answer  /; t numbers
        b
        : numbers
        s/ migrated//
        s/ train\[[0-9]+\]//
        s/ qp 0x[0-9a-f]+ / /
        s/ va 0x[0-9a-f]+ rkey 0x[0-9a-f]+//
        s/ACK, [^ ]+ credits?/ACK/
        s/ icrc.*//
        s/ +/ /g
        p"
}

# as_captured NAME SERVER CLIENT REQUESTER-ADDRESS
as_captured() {
    local name=$1 requests answers
    local capture=/share/out/$name-$3.pcap
    record "$name-$3" checked "$2" "$3" "$name" >/tmp/recorded
    grep -v '^PASS' /tmp/recorded
    passed=$((passed - $(grep -c '^PASS' /tmp/recorded)))
    fields "/share/golden/$name.pcap" 10.9.0.2 | sort -s -k 1,1 >/tmp/golden
    fields "$capture" "$4" | sort -s -k 1,1 >/tmp/ours
    requests=$(grep -c '^request' /tmp/ours)
    answers=$(grep -c '^answer' /tmp/ours)
    if diff /tmp/golden /tmp/ours >/tmp/difference; then
        pass "$2 < $3  $name   $requests requests and $answers answers as captured between two rxe"
    else
        fail "$2 < $3  $name is not as captured between two rxe ($capture)" /tmp/difference
    fi
}

for name in rc-send rc-write rc-read rc-atomic; do
    as_captured "$name" rxe pumice 10.9.0.2
    as_captured "$name" pumice rxe 10.9.0.1
done
