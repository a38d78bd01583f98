# Calls of librdmacm and libibverbs, a line for each (tests/probes): rxe of 6.12 says what tests/golden has of it. What pumice says otherwise is in
# docs/rdma_rxe.md, and tests/connection_probes.rs compares it with the same lines.
# shellcheck shell=bash

[[ $(uname -r) == 6.12* ]] || return 0
out=/share/out/probes
on_rxe /tmp/pumice/probes "$rxe_address" 10.9.0.77 >"$out.rxe" 2>"$out.errors"
status=$?
if [[ $status == 0 ]] && diff /share/golden/probes.txt "$out.rxe" >"$out.diff"; then
    pass "rxe  $(wc -l <"$out.rxe") probes of librdmacm and libibverbs are as in tests/golden"
else
    fail "rxe  probes of librdmacm and libibverbs (status $status)" "$out.diff" "$out.errors"
fi
