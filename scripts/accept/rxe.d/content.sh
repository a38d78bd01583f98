# Every operation, compared byte for byte by tests/interop.
# shellcheck shell=bash

operations=send,write,read,read-1,atomics,atomic-write,flush,nothing,window-1,window-2,send-invalidate,bursts,mixture,uc,ud
checked rxe pumice "$operations"
checked pumice rxe "$operations"
# Multicast leaves by the interface that a route names.
ip route replace 239.0.0.0/8 dev w0
ip -n peer route replace 239.0.0.0/8 dev w1
checked rxe pumice multicast
checked pumice rxe multicast
v6=yes
checked rxe pumice write,read,mixture,ud
checked pumice rxe write,read,mixture,ud
v6=
[[ $extent == full ]] || return 0
for mtu in 256 512 2048 4096; do
    checked rxe pumice send,write,read,read-1,bursts,mixture,uc -m "$mtu"
    checked pumice rxe send,write,read,read-1,bursts,mixture,uc -m "$mtu"
done
