# An arm64 machine, emulated as a whole, with Debian's stock kernel, and a tap device between it and pumice of this machine.
# Sourced by scripts/arm-lab. Everything lies in $lab/machine.
# shellcheck shell=bash

# One processor type that QEMU emulates fast; it has the CRC and atomic instructions of ARMv8.2.
machine_processor=cortex-a76

# Debian 13's kernel, once: $lab/machine/kernel/boot and /lib.
fetch_kernel() {
    local home=$lab/machine/kernel apt=$lab/apt-trixie-arm64 name
    [[ ! -e $home/complete ]] || return 0
    rm -rf "$home"
    # Lists the packages, too.
    download trixie arm64 "$home" busybox-static
    name=$(apt-cache -o "Dir::Etc::sourcelist=$apt/sources.list" -o "Dir::Etc::sourceparts=$apt/parts" -o "Dir::State=$apt/state" \
        -o "Dir::State::status=$apt/installed" -o "Dir::Cache=$apt/cache" -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
        depends linux-image-arm64 | awk '$1 == "Depends:" { print $2; exit }')
    [[ -n $name ]] || missing 'Debian 13 has no kernel for arm64'
    download trixie arm64 "$home" "$name"
    dpkg-deb --fsys-tarfile "$home"/linux-image-*.deb | tar -x -C "$home" --no-same-owner ./boot ./usr/lib/modules
    dpkg-deb --fsys-tarfile "$home"/busybox-static_*.deb | tar -x -C "$home" --no-same-owner ./usr/bin/busybox
    ln -s usr/lib "$home/lib"
    depmod -b "$home" "$(ls "$home/lib/modules")"
    rm -f "$home"/*.deb
    touch "$home/complete"
}

# The initramfs: busybox, Debian's programs and C library of the root, and what `build` built.
make_initramfs() {
    local home=$lab/machine files=$lab/machine/files name version libraries=usr/lib/aarch64-linux-gnu
    rm -rf "$files"
    mkdir -p "$files"/{proc,sys,dev,tmp,run,root,etc,order,opt/pumice} "$files/usr"/{bin,sbin} "$files/$libraries"
    for name in bin sbin lib; do ln -s "usr/$name" "$files/$name"; done
    ln -s aarch64-linux-gnu/ld-linux-aarch64.so.1 "$files/usr/lib/ld-linux-aarch64.so.1"
    cp "$home/kernel/usr/bin/busybox" "$root"/usr/bin/ibv_*pingpong "$files/usr/bin/"
    for name in ld-linux-aarch64.so.1 lib{c,m}.so.6 libgcc_s.so.1 libdl.so.2 lib{pthread,rt,util}.so.{0,1}; do
        [[ ! -e $root/$libraries/$name ]] || cp -L "$root/$libraries/$name" "$files/$libraries/"
    done
    cp "$lab"/arm64/{pumice,*.so} "$files/opt/pumice/"
    version=$(ls "$home/kernel/lib/modules")
    for name in virtio_pci virtio_net; do
        modprobe -d "$home/kernel" -S "$version" --show-depends "$name"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r name; do
        xz -dc "$name" >"$files/order/$(basename "${name%.xz}")"
        printf '/order/%s\n' "$(basename "${name%.xz}")" >>"$files/order/modules"
    done
    printf 'root:x:0:0::/root:/bin/sh\n' >"$files/etc/passwd"
    printf 'root:x:0:\n' >"$files/etc/group"
    install -m 755 scripts/arm-lab.d/init "$files/init"
    (cd "$files" && find . -mindepth 1 | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$home/initramfs"
}

# Boots it, and serves it from this machine; what it prints is in $lab/machine/console, in lines "result: STATUS NAME".
run_machine() {
    local home=$lab/machine
    rm -f "$home/console"
    # shellcheck disable=SC2016
    timeout -k 5 "${machine_seconds:-600}" unshare --net --pid --fork --kill-child bash -c '
        home=$1 native=$2 processor=$3
        ip link set lo up
        ip tuntap add tap0 mode tap
        ip addr add 10.77.0.1/24 dev tap0
        ip addr add 10.77.0.3/24 dev tap0
        ip link set tap0 up
        mkdir -p -m 700 "$home/run"
        export XDG_RUNTIME_DIR=$home/run
        "$native" perf server --addr 10.77.0.3 &
        for port in 18516:rc 18517:ud; do
            ! command -v ibv_rc_pingpong >/dev/null ||
                "$native" run --addr 10.77.0.1 --wire udp --log warn -- "ibv_${port#*:}_pingpong" -d pumice0 -g 0 -c -n 100 -p "${port%:*}" &
        done
        qemu-system-aarch64 -nodefaults -no-reboot -display none -machine virt,gic-version=3 -accel tcg,thread=multi -cpu "$processor" \
            -smp 2 -m 1024M -kernel "$home"/kernel/boot/vmlinuz-* -initrd "$home/initramfs" \
            -append "console=ttyAMA0 quiet panic=-1 mitigations=off" -serial "file:$home/console" \
            -netdev tap,id=n,ifname=tap0,script=no,downscript=no -device virtio-net-pci,netdev=n,romfile= </dev/null
    ' _ "$home" "$native" "$machine_processor"
}
