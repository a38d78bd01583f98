#!/bin/bash
# Runs in the virtual machine: every group of scenarios that is named, in order. See scripts/accept/rxe.
#   run.sh quick|full GROUP...
set -uo pipefail
extent=$1
shift
source /share/scenarios/guest.sh
network mixed
rxe_gid=$(lab-network gid rxe0 "$rxe_address")
rxe_gid6=$(lab-network gid rxe0 "$rxe_v6")
install_programs
for group in "$@"; do
    printf '== %s ==\n' "$group"
    begun=$SECONDS
    source "/share/scenarios/$group.sh"
    printf '   %s s\n' $((SECONDS - begun))
done
finish
