# MPI (Debian's Open MPI on UCX) over two rails, every value compared: alone, and while something happens to one rail of each rank.
# Sourced by rails.
# shellcheck shell=bash

# mpi [OPTIONS...]: four ranks, with these options of pumice. Sets `out` and `status`.
mpi() {
    next_addresses
    out=$logs/$number status=0
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm_rsh_agent=false \
        UCX_TLS=rc_v,self UCX_NET_DEVICES=pumice0:1,pumice1:1 UCX_MAX_RNDV_RAILS=2 UCX_RC_TIMEOUT=100ms UCX_UD_TIMEOUT=10s \
        UCX_WARN_UNUSED_ENV_VARS=n timeout "$limit_seconds" "$pumice" run --addr "$one" --log warn "$@" -- \
        mpirun --mca pml ucx --mca btl '^openib,tcp,vader,ofi' --mca mpi_yield_when_idle 1 -np 4 "$mpi_verify" >"$out" 2>&1 || status=$?
}

# mpi_completes NAME KIND [OPTIONS...]: every value is as it should be, and both rails were used. KIND is what has happened, if anything.
mpi_completes() {
    local name=$1
    mpi "${@:3}"
    if [[ $status == 0 ]] && grep -q '^verified ' "$out" &&
        { [[ -z $2 ]] || grep -q "has $2 .*happen before" "$out"; } &&
        (($(sent pumice0) > 1 << 20 && $(sent pumice1) > 1 << 20)); then
        pass "$name   $(grep '^verified ' "$out"); the devices sent $(sent pumice0) and $(sent pumice1) bytes"
    else
        fail "$name (status $status)" "$out"
    fi
}

# mpi_fails KIND: for longer than UCX repeats. A rank aborts, and mpirun ends all of them.
mpi_fails() {
    local name="mpirun -np 4 over two rails, $1 on one of them: it ends and says so"
    mpi --fault "event kind=$1 device=pumice1 message=3"
    if [[ $status != 0 && $status != 124 ]] && grep -q 'transport retry counter exceeded' "$out"; then
        pass "$name   status $status"
    else
        fail "$name (status $status)" "$out"
    fi
}

mpi_verify=$logs/openmpi-verify
if command -v mpicc >/dev/null && command -v mpirun >/dev/null && [[ -n ${UCX_NET_DEVICES:-} ]] &&
    mpicc -std=gnu11 -O1 -o "$mpi_verify" scripts/accept/openmpi-verify.c 2>"$logs/mpicc"; then
    mpi_completes 'mpirun -np 4 over two rails' ''
    mpi_completes 'mpirun -np 4 over two rails, port-down for 300 ms on one of them' port-down \
        --fault 'event kind=port-down device=pumice1 message=3 time=300ms'
    mpi_completes 'mpirun -np 4 over two rails, cable-pull for 300 ms on one of them' cable-pull \
        --fault 'event kind=cable-pull device=pumice1 message=3 time=300ms'
    mpi_fails port-down
    mpi_fails cable-pull
else
    skip 'MPI over two rails' 'apt-get install libopenmpi-dev openmpi-bin'
fi
