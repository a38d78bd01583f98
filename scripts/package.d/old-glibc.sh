# What a program is linked with so that it runs on old systems: the start files of Debian 11's C library (2.31), and its
# libraries without code, with the symbols alone, of which those that came after a version are missing. Sourced by
# scripts/package.d/build.
# shellcheck shell=bash

# symbols_until VERSION: from what readelf --dyn-syms says of a library, its symbols without code, as assembly, on standard
# output, and the nodes of a version script as the file that `nodes` names.
symbols_until() {
    awk -v limit="$1" -v nodes="$2" '
        function number(version, part) {
            sub(/^GLIBC_/, "", version)
            split(version, part, ".")
            return part[1] * 1000000 + part[2] * 1000 + part[3]
        }
        BEGIN { most = number("GLIBC_" limit) }
        $7 ~ /^[0-9]+$/ && $8 ~ /@GLIBC_[0-9.]+$/ && $4 ~ /^(FUNC|IFUNC|OBJECT)$/ {
            name = $8
            sub(/@.*/, "", name)
            version = $8
            sub(/.*@/, "", version)
            is_default = $8 ~ /@@/
            if (number(version) > most) {
                # An older one of this name takes its place.
                if (is_default) orphan[name] = 1
                next
            }
            count++
            of[count] = name
            node[count] = version
            kind[count] = $4 == "OBJECT" ? "object" : "function"
            size[count] = $3
            default_of[count] = is_default
            if (!(name in newest) || number(version) > number(node[newest[name]])) newest[name] = count
            if (!(version in seen)) {
                seen[version] = 1
                print version " { local: stub_*; };" >nodes
            }
        }
        END {
            for (i = 1; i <= count; i++) {
                at = default_of[i] || ((of[i] in orphan) && newest[of[i]] == i) ? "@@" : "@"
                printf "%s\n.globl stub_%d\n.type stub_%d, %%%s\n", kind[i] == "object" ? ".data" : ".text", i, i, kind[i]
                printf ".symver stub_%d, %s%s%s\nstub_%d:\n.zero %d\n.size stub_%d, %d\n", i, of[i], at, node[i], i, \
                    kind[i] == "object" ? size[i] : 1, i, kind[i] == "object" ? size[i] : 1
            }
            print ".section .note.GNU-stack,\"\",%progbits"
        }'
}

# old_glibc DEBIAN-ARCHITECTURE GNU-TRIPLE VERSION: sets `old_glibc`, a folder for --sysroot.
old_glibc() {
    local architecture=$1 gnu=$2 version=$3 name target work key
    key=$(cat "$here/old-glibc.sh" | sha256sum | head -c 12)
    old_glibc=$lab/glibc-$version-$architecture-$key
    exec 7>"$lab/glibc.lock"
    flock 7
    if [[ ! -e $old_glibc/complete ]]; then
        rm -rf "$lab/glibc-$version-$architecture"-*
        work=$old_glibc/work
        mkdir -p "$work"
        download bullseye "$architecture" "$work" libc6 libc6-dev libgcc-s1
        for name in "$work"/*.deb; do
            dpkg-deb --fsys-tarfile "$name" | tar -x -C "$old_glibc" --no-same-owner \
                --exclude './usr/share' --exclude './usr/include' --exclude './usr/bin' --exclude '*/gconv' --exclude './sbin'
        done
        rm -f "$work"/*.deb
        # Links of the packages begin with "/", which is this system's.
        find "$old_glibc" -type l -lname '/*' -printf '%l\n%p\n' | while read -r target && read -r name; do
            ln -sfrT "$old_glibc$target" "$name"
        done
        # The loader under the name that programs have.
        name=$(compgen -G "$old_glibc/lib*/ld-linux-*" | head -n 1)
        stub "$name" "$work" "$version"
        # libm.so asks for libmvec, which not every architecture has.
        for name in libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1; do
            [[ ! -e $old_glibc/lib/$gnu/$name ]] || stub "$old_glibc/lib/$gnu/$name" "$work" "$version"
        done
        rm -rf "$work"
        touch "$old_glibc/complete"
    fi
    flock -u 7
}

# stub LIBRARY WORK VERSION: in the place of the library, one without code.
stub() {
    local library=$1 name work=$2
    name=$(basename "$1")
    rm -f "$work"/*
    LC_ALL=C on_builder "${prefix}readelf" -W --dyn-syms "$(seen "$library")" |
        symbols_until "$3" "$work/nodes" >"$work/symbols.s"
    [[ -s $work/nodes ]] || missing "$name of Debian 11 has no symbols of glibc $3 or older"
    on_builder "${prefix}gcc" -shared -nostdlib -Wl,--hash-style=gnu "-Wl,-soname,$name" \
        "-Wl,--version-script=$(seen "$work")/nodes" -o "$(seen "$work")/$name" "$(seen "$work")/symbols.s"
    # Under the name of the file itself: links lead to it.
    mv "$work/$name" "$(readlink -f "$library")"
}
