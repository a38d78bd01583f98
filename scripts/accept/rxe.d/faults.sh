# Faults of the network: everything completes, and every byte is right.
#
# With rxe as the requester there are SENDs and WRITEs only: when READs or atomics among other requests have to be sent again,
# Linux 6.1 and 6.12 lose their place now and then, between two rxe as well (completions with a flush error and no cause).
# shellcheck shell=bash

# under NAME NETEM...: on both directions.
under() {
    local name=$1
    shift
    weather w0 "$@" && weather w1 "$@"
    weather_name=$name
    checked rxe pumice mixture,bursts -n "$requests"
    checked pumice rxe send,write,bursts
    [[ $extent != full ]] || both_ways usec/iter 'ibv_rc_pingpong -c' ibv_rc_pingpong -d @DEVICE -g @GID -c -n 200
    weather_name=
    weather fine
}

requests=640
[[ $extent == full ]] || requests=96
under '5 % lost' loss 5%
under 'reordered' delay 2ms reorder 25% 50%
if [[ $extent == full ]]; then
    under '1 % lost' loss 1%
    under '10 % twice' duplicate 10%
    under '2 % lost, 5 % twice, reordered' delay 1ms reorder 10% 50% loss 2% duplicate 5%
fi
