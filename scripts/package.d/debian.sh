# Debian's packages for scripts that build or test on other systems than this one. Sourced by scripts/package.d/build,
# scripts/arm-lab and scripts/accept/userlands, which define `lab`, a folder, and `missing`, which ends the script.
# shellcheck shell=bash

# What apt asks of these archives: Debian sid's lists expire after a week where a mirror stands still.
patient=(-o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o Acquire::Languages=none -o DPkg::Lock::Timeout=300)

# host_tools COMMAND:PACKAGE...: installs on this machine what it lacks.
host_tools() {
    local entry absent=()
    for entry in "$@"; do
        command -v "${entry%%:*}" >/dev/null || absent+=("${entry##*:}")
    done
    ((${#absent[@]} > 0)) || return 0
    command -v apt-get >/dev/null || missing "this is no Debian system, and there is no ${absent[*]}"
    local root=()
    [[ $(id -u) == 0 ]] || root=(sudo -n)
    "${root[@]}" apt-get "${patient[@]}" update -qq >/dev/null 2>&1 || true
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "${patient[@]}" install -y -qq --no-install-recommends \
        "${absent[@]}" >/dev/null 2>&1 ||
        missing "could not be installed: apt-get install --no-install-recommends ${absent[*]}"
}

# Debian's archive as this host reaches it.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -m 1 -E '/debian/?$') || found=http://deb.debian.org/debian
    printf '%s\n' "${found%/}"
}

# download SUITE ARCHITECTURE FOLDER PACKAGE...: their files, without installing and without what they depend on.
download() {
    local suite=$1 architecture=$2 folder=$3 home=$lab/apt-$1-$2 keys=/usr/share/keyrings/debian-archive-keyring.gpg
    shift 3
    command -v apt-get >/dev/null || missing 'this is no Debian system: there is no apt-get to fetch packages with'
    [[ -r $keys ]] || host_tools no-such-command:debian-archive-keyring
    mkdir -p "$home"/{state/lists/partial,cache/archives/partial,parts} "$folder"
    : >"$home/installed"
    printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$(mirror)" "$suite" >"$home/sources.list"
    local options=(
        "${patient[@]}" -o "Dir::Etc::sourcelist=$home/sources.list" -o "Dir::Etc::sourceparts=$home/parts"
        -o "Dir::State=$home/state" -o "Dir::State::status=$home/installed" -o "Dir::Cache=$home/cache"
        -o "APT::Architecture=$architecture" -o "APT::Architectures::=$architecture" -o APT::Sandbox::User=root
    )
    apt-get "${options[@]}" update -qq >"$home/update.log" 2>&1 ||
        missing "the packages of Debian $suite cannot be listed: $(tail -n 1 "$home/update.log")"
    (cd "$folder" && apt-get "${options[@]}" -qq download "$@" >"$home/download.log" 2>&1) ||
        missing "packages of Debian $suite cannot be fetched: $(tail -n 1 "$home/download.log")"
}

# new_root SUITE FOLDER PACKAGE...: a system made by debootstrap, once. A half-made one is not kept.
new_root() {
    local suite=$1 folder=$2 included
    shift 2
    [[ ! -e $folder/complete ]] || return 0
    [[ $(id -u) == 0 ]] || missing "Debian $suite must be unpacked for this, which takes root rights"
    unshare --mount true 2>/dev/null || missing 'a mount namespace cannot be made here'
    host_tools debootstrap:debootstrap
    included=$(IFS=,; printf '%s' "$*")
    rm -rf "$folder"
    mkdir -p "$folder"
    debootstrap --variant=minbase ${included:+"--include=$included"} "$suite" "$folder" "$(mirror)" >"$folder.log" 2>&1 ||
        missing "Debian $suite cannot be fetched (see $folder.log): $(tail -n 1 "$folder.log")"
    rm -f "$folder"/var/cache/apt/archives/*.deb
    touch "$folder/complete"
}

# enter ROOT [HOST-FOLDER:FOLDER]... -- COMMAND...: runs there, with this machine's devices and network, its own /proc, and
# these folders. The mounts end with the command.
enter() {
    local root=$1 mounts=()
    shift
    while [[ $1 != -- ]]; do
        mkdir -p "$root${1##*:}"
        mounts+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2016
    unshare --mount bash -c '
        set -e
        root=$1 count=$2
        shift 2
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        for ((; count > 0; count--)); do
            mount --rbind "${1%%:*}" "$root${1##*:}"
            shift
        done
        exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
    ' _ "$root" "${#mounts[@]}" "${mounts[@]}" "$@"
}

# build_root ARCHITECTURE: Debian sid with rustc, and what it needs to build for that architecture. Sets `root`.
build_root() {
    local architecture=$1 own wanted=() compiler
    root=$lab/sid
    mkdir -p "$lab"
    exec 8>"$lab/lock"
    flock 8
    # The mirror's package lists must be there to add to it, so apt stays.
    new_root sid "$root" ca-certificates rustc cargo lld gcc libc6-dev
    own=$(chroot "$root" dpkg --print-architecture)
    if [[ $architecture != "$own" ]]; then
        case $architecture in
        amd64) compiler=gcc-x86-64-linux-gnu ;;
        arm64) compiler=gcc-aarch64-linux-gnu ;;
        riscv64) compiler=gcc-riscv64-linux-gnu ;;
        esac
        wanted=("libstd-rust-dev:$architecture" "$compiler" "libc6-dev:$architecture")
    fi
    if ((${#wanted[@]} > 0)) && [[ ! -e $root/complete-$architecture ]]; then
        cp /etc/resolv.conf "$root/etc/resolv.conf"
        chroot "$root" dpkg --add-architecture "$architecture"
        enter "$root" -- sh -c 'apt-get "$@" update -qq' _ "${patient[@]}" >"$root.log" 2>&1 &&
            enter "$root" -- env DEBIAN_FRONTEND=noninteractive apt-get "${patient[@]}" install -y -qq --no-install-recommends \
                "${wanted[@]}" >>"$root.log" 2>&1 ||
            missing "Debian sid cannot build for $architecture (see $root.log): $(tail -n 1 "$root.log")"
        rm -f "$root"/var/cache/apt/archives/*.deb
        touch "$root/complete-$architecture"
    fi
    flock -u 8
}

# in_root VIRTUAL-SOURCE SOURCE LAB COMMAND...: in the root of build_root; crates come from the host's cargo home, if it has one.
in_root() {
    local folders=("$2:$1" "$3:/lab") home=${CARGO_HOME:-$HOME/.cargo}
    shift 3
    mkdir -p "$home"
    folders+=("$home:/root/.cargo")
    # The registry of crates is trusted as on this machine.
    [[ ! -e /etc/ssl/certs/ca-certificates.crt ]] || folders+=(/etc/ssl/certs:/etc/ssl/certs)
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    enter "$root" "${folders[@]}" -- "$@"
}
