# perftest: every operation over every service that rxe has, sizes, path MTUs, sleeping on events, IPv6.
# Figures are of emulated processors: that there are any is what counts.
# shellcheck shell=bash
row='^ *[0-9]+ +[0-9]+ +[0-9.]+ '

# tried PROGRAM OPTION...: both ways.
tried() {
    both_ways "$row" "$*${v6:+, IPv6}" "$@" -F -d @DEVICE -x @GID
}

if [[ $extent == quick ]]; then
    tried ib_send_bw -s 65536 -n 20
    tried ib_write_bw -s 1048576 -n 5
    tried ib_read_bw -s 65536 -n 20
    tried ib_atomic_lat -n 20
else
    for program in ib_send_bw ib_write_bw ib_read_bw; do
        for size in 1 33 1024 65536 1048576; do tried "$program" -s "$size" -n 20; done
    done
    for program in ib_send_lat ib_write_lat ib_read_lat; do
        for size in 1 33 1024 65536; do tried "$program" -s "$size" -n 20; done
        tried "$program" -s 1048576 -n 5
    done
    for kind in FETCH_AND_ADD CMP_AND_SWAP; do
        tried ib_atomic_bw -A $kind -n 100
        tried ib_atomic_lat -A $kind -n 20
        tried ib_atomic_lat -A $kind -e -n 20
    done
fi

# Nothing holds an unreliable sender back: what it sends must fit the receiver's socket, with the limit that `pumice doctor`
# recommends.
echo 4194304 >/proc/sys/net/core/rmem_max
tried ib_send_bw -c UD -s 1024 -n 100
tried ib_send_bw -c UC -s 65536 -n 20
[[ $extent == full ]] || return 0

for size in 1 33 1024 65536; do tried ib_send_bw -c UC -s "$size" -n 20; done
tried ib_send_bw -c UC -s 1048576 -n 5
for size in 1 33 1024 4096; do tried ib_send_bw -c UD -m 4096 -s "$size" -n 100; done
tried ib_send_lat -c UC -s 33 -n 20
tried ib_send_lat -c UD -s 33 -n 20
tried ib_write_bw -c UC -s 65536 -n 20
tried ib_write_lat -c UC -s 33 -n 20
for mtu in 256 512 1024 2048 4096; do
    tried ib_send_bw -m "$mtu" -s 65536 -n 20
    tried ib_write_bw -m "$mtu" -s 65536 -n 20
    tried ib_read_bw -m "$mtu" -s 65536 -n 20
    tried ib_send_bw -c UC -m "$mtu" -s 65536 -n 20
    tried ib_send_bw -c UD -m "$mtu" -s "$mtu" -n 20
done
for program in ib_send_bw ib_send_lat ib_read_bw ib_read_lat; do tried "$program" -e -s 4096 -n 20; done
tried ib_send_bw -b -s 65536 -n 20
tried ib_send_bw -q 4 -s 4096 -n 20
tried ib_send_bw --use-srq -s 4096 -n 20
v6=yes
for program in ib_send_bw ib_write_bw ib_read_bw; do tried "$program" -s 65536 -n 20; done
tried ib_atomic_bw -n 20
tried ib_send_bw -c UC -s 65536 -n 20
tried ib_send_bw -c UD -s 1024 -n 20
tried ib_send_lat -e -s 33 -n 20
v6=
