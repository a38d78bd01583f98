# Running arm64 programs: QEMU's user-mode emulation, known to the kernel in a user namespace only. Sourced by scripts/arm-lab,
# which has sourced scripts/package.d/debian.sh and called build_root.
# shellcheck shell=bash

# An ELF file, little-endian, 64 bits, EXEC or DYN, machine 183; and which bits of that are looked at.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

# add_packages PACKAGE...: into the root, once.
add_packages() {
    local marker
    marker=$root/packages-$(tr -c 'a-z0-9\n' - <<<"$*")
    [[ ! -e $marker ]] || return 0
    enter "$root" -- env DEBIAN_FRONTEND=noninteractive apt-get "${patient[@]}" install -y -qq --no-install-recommends "$@" \
        >"$root.log" 2>&1 || missing "Debian sid has not all of: $* (see $root.log)"
    rm -f "$root"/var/cache/apt/archives/*.deb
    touch "$marker"
}

# The emulator of the same Debian, as it is in its package: it is linked statically. Sets `emulator`.
fetch_emulator() {
    emulator=$lab/qemu/usr/bin/qemu-aarch64
    if [[ ! -x $emulator ]]; then
        download sid "$(dpkg --print-architecture)" "$lab/qemu" qemu-user
        dpkg-deb --fsys-tarfile "$lab"/qemu/qemu-user_*.deb | tar -x -C "$lab/qemu" --no-same-owner ./usr/bin/qemu-aarch64
        rm -f "$lab"/qemu/*.deb
    fi
    unshare --user --map-root-user --mount sh -c 'mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && [ -w /proc/sys/fs/binfmt_misc/register ]' \
        2>"$logs/binfmt.log" ||
        missing "the kernel has no binfmt_misc for user namespaces (Linux 6.7 or newer): $(tail -n 1 "$logs/binfmt.log")"
}

# emulate COMMAND...: in the root, where arm64 programs run; in a network namespace of its own.
emulate() {
    mkdir -p "$root/usr/src/pumice" "$root/lab"
    # shellcheck disable=SC2016
    timeout -k 5 "${limit_seconds:-300}" unshare --user --map-root-user --mount --net --pid --fork --kill-child bash -c '
        set -e
        root=$1 lab=$2 source=$3 emulator=$4 line=$5
        shift 5
        ip link set lo up
        mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
        printf "%s" "$line" >/proc/sys/fs/binfmt_misc/register
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmp "$root/tmp"
        mount --rbind "$source" "$root/usr/src/pumice"
        mount --rbind "$lab" "$root/lab"
        exec chroot "$root" /usr/bin/env -i PATH=/lab/arm-bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 "$@"
    ' _ "$root" "$lab" "$source_dir" "$emulator" ":pumice-arm64:M::$magic:$mask:$emulator:FP" "$@"
}

# binaries PROFILE NAME: test programs of that name, the newest first, as they are seen in the root.
binaries() {
    local found
    found=$(find "$lab/target/$triple/$1/deps" -maxdepth 1 -type f -name "$2-*" -executable ! -name '*.so' -printf '%T@ %f\n' 2>/dev/null |
        sort -rn | head -n 1)
    [[ -z $found ]] || printf '/lab/target/%s/%s/deps/%s\n' "$triple" "$1" "${found#* }"
}

# Compilers that tests call make arm64 programs.
compile_for_arm() {
    mkdir -p "$lab/arm-bin"
    ln -sf /usr/bin/aarch64-linux-gnu-gcc "$lab/arm-bin/cc"
    ln -sf /usr/bin/aarch64-linux-gnu-nm "$lab/arm-bin/nm"
}

# test_binary PROFILE CRATE NAME WORDS...: runs it as cargo would.
test_binary() {
    local place folder
    case $2 in
    pumice-transport | pumice-device | pumice-verbs) folder=${2#pumice-} ;;
    *)
        folder=verbs/${2#pumice-}
        [[ ! -d $source_dir/device/${2#pumice-} ]] || folder=device/${2#pumice-}
        ;;
    esac
    place=$(binaries "$1" "$3")
    [[ -n $place ]] || {
        printf 'there is no test program %s\n' "$3"
        return 1
    }
    compile_for_arm
    emulate env --chdir="/usr/src/pumice/$folder" "$place" "${@:4}"
}
