# Debian's ping-pongs.
# shellcheck shell=bash
per='usec/iter'
for kind in rc uc ud srq; do
    both_ways "$per" "ibv_${kind}_pingpong" "ibv_${kind}_pingpong" -d @DEVICE -g @GID -n 100
done
v6=yes
both_ways "$per" "ibv_rc_pingpong -c, IPv6" ibv_rc_pingpong -d @DEVICE -g @GID -n 100 -c
v6=
[[ $extent == full ]] || return 0
both_ways "$per" "ibv_rc_pingpong -c -e" ibv_rc_pingpong -d @DEVICE -g @GID -n 100 -c -e
both_ways "$per" "ibv_rc_pingpong -c -s 100001 -m 4096" ibv_rc_pingpong -d @DEVICE -g @GID -n 20 -c -s 100001 -m 4096
both_ways "$per" "ibv_rc_pingpong -N" ibv_rc_pingpong -d @DEVICE -g @GID -n 100 -N
both_ways "$per" "ibv_rc_pingpong -c -s 1 -m 256" ibv_rc_pingpong -d @DEVICE -g @GID -n 500 -c -s 1 -m 256
both_ways "$per" "ibv_ud_pingpong -e -s 2048" ibv_ud_pingpong -d @DEVICE -g @GID -n 100 -e -s 2048
both_ways "$per" "ibv_uc_pingpong -e" ibv_uc_pingpong -d @DEVICE -g @GID -n 100 -e
both_ways "$per" "ibv_srq_pingpong -q 16 -e" ibv_srq_pingpong -d @DEVICE -g @GID -n 20 -q 16 -e
v6=yes
both_ways "$per" "ibv_ud_pingpong, IPv6" ibv_ud_pingpong -d @DEVICE -g @GID -n 100
v6=
