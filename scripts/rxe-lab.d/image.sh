# The image of the laboratory: a kernel and an initramfs, from Debian's packages, without installing any of them.
# Sourced by scripts/rxe-lab, which defines `cache`, `parts` and `missing`. Sets `image`.
# shellcheck shell=bash

# What runs inside. What they depend on comes along, except what only installing needs.
wanted_packages=(
    busybox-static bash iproute2 ethtool tcpdump kmod util-linux
    ibverbs-utils ibverbs-providers rdmacm-utils perftest
)
unneeded='^(adduser|base-passwd|coreutils|debconf|debianutils|dpkg|gcc-.*-base|init-system-helpers|login.*|mount|passwd'
unneeded+='|pci.ids|perl.*|libperl.*|rdma-core|sensible-utils|tar|tzdata|udev|libpam.*|libsystemd-shared|libaudit-common'
unneeded+='|libsemanage.*|libsepol.*|libdb5.*|libgdbm.*|netbase|media-types|readline-common)$'
# Modules, and with them what they need.
wanted_modules=(rdma_rxe ib_uverbs ib_umad rdma_ucm veth virtio_pci 9pnet_virtio 9p sch_netem sch_prio sch_ingress cls_u32
    act_gact act_pedit crc32_generic crc32_pclmul crc32c_generic crc32c_intel)

# host_tools COMMAND:PACKAGE...
host_tools() {
    local entry absent=()
    for entry in "$@"; do
        command -v "${entry%%:*}" >/dev/null || absent+=("${entry##*:}")
    done
    ((${#absent[@]} > 0)) || return 0
    command -v apt-get >/dev/null || missing "this is no Debian system, and there is no ${absent[*]}"
    local root=()
    [[ $(id -u) == 0 ]] || root=(sudo -n)
    "${root[@]}" apt-get -o DPkg::Lock::Timeout=120 update -qq >/dev/null 2>&1 || true
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq \
        --no-install-recommends "${absent[@]}" >/dev/null 2>&1 ||
        missing "could not be installed: apt-get install --no-install-recommends ${absent[*]}"
}

# Debian's archive as this host reaches it.
mirror() {
    local found
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -m 1 -E '/debian/?$') || found=http://deb.debian.org/debian
    printf '%s\n' "${found%/}"
}

# release_apt SUITE: `apt` becomes a function that knows this release only, with nothing installed, and changes nothing of
# the host's own lists.
release_apt() {
    local suite=$1 home=$cache/apt-$1 keys=/usr/share/keyrings/debian-archive-keyring.gpg archive
    [[ -r $keys ]] || host_tools no-such-command:debian-archive-keyring
    archive=$(mirror)
    mkdir -p "$home"/{state/lists/partial,cache/archives/partial,debs,parts}
    : >"$home/installed"
    cat >"$home/sources.list" <<LIST
deb [signed-by=$keys] $archive $suite main
deb [signed-by=$keys] $archive-security $suite-security main
LIST
    apt_options=(
        -o "Dir::Etc::sourcelist=$home/sources.list" -o "Dir::Etc::sourceparts=$home/parts"
        -o "Dir::State=$home/state" -o "Dir::State::status=$home/installed" -o "Dir::Cache=$home/cache"
        -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Install-Recommends=false -o APT::Sandbox::User=root
        -o Acquire::Languages=none -o Acquire::Retries=3
    )
    apt-get "${apt_options[@]}" update -qq >"$home/update.log" 2>&1 ||
        missing "the packages of $suite cannot be listed: $(tail -n 1 "$home/update.log")"
    debs=$home/debs
}

# fetch PACKAGE...: their files are then in $debs; prints the names of the files.
fetch() {
    local names
    names=$(apt-get "${apt_options[@]}" -s -o Debug::NoLocking=1 install "$@" 2>/dev/null |
        awk '$1 == "Inst" { print $2 }' | grep -Ev "$unneeded")
    [[ -n $names ]] || missing "apt does not know all of: $*"
    # shellcheck disable=SC2086
    (cd "$debs" && apt-get "${apt_options[@]}" -qq download $names >&2) || missing "packages could not be downloaded"
    local name file
    for name in $names; do
        # The newest by date, if an older version is still there.
        file=$(find "$debs" -name "${name}_*.deb" -printf '%T@ %p\n' | sort -rn | head -n 1)
        printf '%s\n' "${file#* }"
    done
}

# unpack FOLDER DEB...
unpack() {
    local folder=$1 deb
    shift
    for deb in "$@"; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$folder" --keep-directory-symlink --no-same-owner \
            --exclude './usr/share/*' --exclude './usr/lib/x86_64-linux-gnu/gconv' --exclude './usr/lib/locale'
    done
}

# The kernel as it is before compression, which qemu can start at once: unpacking it would be emulated. The offsets are those
# of the x86 boot protocol: setup_sects, payload_offset, payload_length.
plain_kernel() {
    local packed=$1 sectors offset length
    sectors=$(od -An -tu1 -j 497 -N 1 "$packed")
    offset=$(od -An -tu4 -j 584 -N 4 "$packed")
    length=$(od -An -tu4 -j 588 -N 4 "$packed")
    tail -c +$((1 + (1 + sectors) * 512 + offset)) "$packed" | head -c $((length - 4)) >"$2.payload" || true
    local unpacker
    for unpacker in 'zstd -dcq' 'xz -dcq --single-stream' 'gzip -dcq'; do
        if $unpacker <"$2.payload" >"$2" 2>/dev/null && [[ $(head -c 4 "$2") == $'\177ELF' ]]; then
            rm "$2.payload"
            return
        fi
    done
    cp "$packed" "$2"
    rm "$2.payload"
}

# modules KERNEL-FOLDER VERSION ROOT
modules() {
    local from=$1 version=$2 root=$3 name file
    local to=$root/usr/lib/modules/$version
    mkdir -p "$to"
    depmod -b "$from" "$version"
    for name in "${wanted_modules[@]}"; do
        modprobe -d "$from" -S "$version" --show-depends "$name" 2>/dev/null || true
    done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r file; do
        name=$(basename "$file")
        case $name in
        *.xz) xz -dc "$file" >"$to/${name%.xz}" ;;
        *.zst) zstd -dcq "$file" >"$to/${name%.zst}" ;;
        *) cp "$file" "$to/" ;;
        esac
    done
    cp "$from/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "$to/"
    [[ -e $to/rdma_rxe.ko ]] || missing "the kernel $version has no rdma_rxe"
    depmod -b "$root" "$version"
}

# Everything that the programs load must be inside; what is not is named here and not by a failing test.
check_programs() {
    local root=$1 program lacking
    for program in ip tc ethtool tcpdump ib_send_bw ibv_rc_pingpong rping rdma setpriv bash; do
        program=$(find "$root/usr/bin" "$root/usr/sbin" -name "$program" | head -n 1)
        [[ -n $program ]] || missing "a program is missing in the image"
        lacking=$("$root/usr/lib64/ld-linux-x86-64.so.2" --inhibit-cache --library-path "$root/usr/lib/x86_64-linux-gnu" \
            --list "$program" 2>&1 | grep -v -e "$root" -e linux-vdso -e 'statically linked' -e /lib64/ld-linux || true)
        [[ -z $lacking ]] || missing "$(basename "$program") lacks in the image:$lacking"
    done
}

# make_image KERNEL
make_image() {
    local suite key version began=$SECONDS
    case $1 in
    6.1) suite=bookworm ;;
    6.12) suite=trixie ;;
    *) wrong "--kernel $1: there are 6.1 and 6.12" ;;
    esac
    [[ $(uname -m) == x86_64 ]] || missing "it is for x86-64 hosts: pumice's programs are built by the host"
    PATH=$PATH:/usr/sbin:/sbin
    host_tools qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod xz:xz-utils zstd:zstd flock:util-linux
    key=$(cat "$parts"/* | sha256sum | head -c 12)
    image=$cache/$1-$key
    mkdir -p "$cache" || missing "there is no place for the image: $cache"
    exec 8>"$cache/lock"
    flock 8
    if [[ ! -e $image/complete ]]; then
        # Other checkouts may have others; what none has used for a week goes.
        find "$cache" -maxdepth 1 -name "$1-*" -mtime +7 -exec rm -rf {} +
        rm -rf "$image" "$cache/work"
        mkdir -p "$image" "$cache/work/kernel" "$cache/work/root/usr"/{bin,sbin,lib,lib64}
        release_apt "$suite"
        local root=$cache/work/root name
        for name in bin sbin lib lib64; do ln -s "usr/$name" "$root/$name"; done

        local files
        files=$(fetch "${wanted_packages[@]}")
        # shellcheck disable=SC2086
        unpack "$root" $files
        # The kernel alone: its dependencies are for installing it.
        name=$(apt-cache "${apt_options[@]}" depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
        (cd "$debs" && rm -f linux-image-* && apt-get "${apt_options[@]}" -qq download "$name" >&2) ||
            missing "the kernel $name could not be downloaded"
        dpkg-deb --fsys-tarfile "$debs/$name"_*.deb | tar -x -C "$cache/work/kernel" --no-same-owner
        # Debian 13 has /usr/lib/modules, older ones /lib/modules.
        [[ -e $cache/work/kernel/lib ]] || ln -s usr/lib "$cache/work/kernel/lib"
        version=$(basename "$cache/work/kernel/lib/modules"/*)
        plain_kernel "$cache/work/kernel/boot/vmlinuz-$version" "$image/kernel"
        modules "$cache/work/kernel" "$version" "$root"

        # Busybox for the commands that are missing.
        for name in $("$root/usr/bin/busybox" --list); do
            [[ -e $root/usr/bin/$name || -e $root/usr/sbin/$name ]] || ln -s busybox "$root/usr/bin/$name"
        done
        mkdir -p "$root"/{proc,sys,dev,run,tmp,root,order,share,etc}
        printf 'root:x:0:0::/root:/bin/sh\ntcpdump:x:0:0::/:/bin/sh\nordinary:x:1000:1000::/tmp:/bin/sh\n' >"$root/etc/passwd"
        printf 'root:x:0:\nordinary:x:1000:\n' >"$root/etc/group"
        printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
        printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
        install -m 755 "$parts/init" "$root/init"
        install -m 755 "$parts/lab-network" "$root/usr/sbin/lab-network"
        check_programs "$root"
        (cd "$root" && find . -mindepth 1 | cpio --quiet -o -H newc -R 0:0) >"$image/initramfs"
        rm -rf "$cache/work"
        touch "$image/complete"
        printf 'rxe-lab: image with the kernel %s made in %s s\n' "$version" $((SECONDS - began)) >&2
    fi
    touch "$image"
    exec 8>&-
}
