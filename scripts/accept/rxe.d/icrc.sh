# ICRCs, both ways: rxe counts the packets that it took, and a capture those that there were.
# shellcheck shell=bash
received_by_rxe() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts; }

before=$(received_by_rxe)
record icrc-pumice-sends checked rxe pumice write,send,bursts,read
after=$(received_by_rxe)
/tmp/pumice/pumice capture --json /share/out/icrc-pumice-sends.pcap >/tmp/packets
sent=$(grep -c '"source":"10.9.0.2"' /tmp/packets)
bad=$(grep -c '"icrc":"bad"' /tmp/packets)
batches=$(grep -c "\"batch" /tmp/packets)
if ((sent > 0 && bad == 0 && after - before == sent)); then
    pass "rxe takes every packet of pumice   $sent sent, $((after - before)) taken, $batches of batches; no ICRC is wrong"
else
    fail "rxe takes every packet of pumice: $sent sent, $((after - before)) taken, $bad wrong ICRCs" /dev/null
fi

# Packets (and batches) change on the way: who takes one has wrong bytes, or a wrong length, or a wrong address.
damage w0 50
at_pumice=yes record icrc-damaged-to-pumice checked pumice rxe bursts,send
at_pumice=yes record icrc-damaged-answers checked rxe pumice atomics,read
damage off
damage w1 20
record icrc-damaged-to-rxe checked rxe pumice bursts,send
record icrc-damaged-answers-to-rxe checked pumice rxe atomics,read
damage off
for name in damaged-to-pumice damaged-answers damaged-to-rxe damaged-answers-to-rxe; do
    total=$(/tmp/pumice/pumice capture --json "/share/out/icrc-$name.pcap" | tee /tmp/packets | wc -l)
    bad=$(grep -c '"icrc":"bad"' /tmp/packets)
    if ((bad > 0)); then
        pass "$name   of $total packets $bad had a wrong ICRC, and no byte is wrong"
    else
        fail "$name: none of $total packets was damaged" /dev/null
    fi
done
