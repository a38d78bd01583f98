# Faults of the network: everything completes, and every byte is right.
#
# One kind of request at a time: when READs or atomics among others have to be sent again, rdma_rxe (seen on Linux 6.12) loses its
# place now and then, as the requester (a flush error without a cause) and as the responder (a receive that ends with a remote access
# error). Between two rxe it does so as well. And one direction at a time: of ping-pongs with 5 % lost, 4 in 16 between two rxe stood
# still, because one of them had sent its message twice, once after the acknowledgement, and never sent the next.
# shellcheck shell=bash

# under NAME NETEM...: on both directions.
under() {
    local name=$1
    shift
    weather w0 "$@" && weather w1 "$@"
    weather_name=$name
    checked rxe pumice send,write,read,atomics,bursts
    checked pumice rxe send,write,bursts
    weather_name=
    weather fine
}

under '5 % lost' loss 5%
under 'reordered' delay 2ms reorder 25% 50%
if [[ $extent == full ]]; then
    under '1 % lost' loss 1%
    under '10 % twice' duplicate 10%
    under '2 % lost, 5 % twice, reordered' delay 1ms reorder 10% 50% loss 2% duplicate 5%
fi
