# The Debian packages pumice and pumice-dbgsym. Sourced by scripts/package.
#
# dpkg-deb makes them: it is on every system with Debian packages, and its output is reproducible. cargo-deb would build a
# second time, and would be built first.
# shellcheck shell=bash

# control_of FOLDER FIELDS...: writes DEBIAN/control and DEBIAN/md5sums.
control_of() {
    local size
    size=$(find "$1" -type f -printf '%k\n' | awk '{ sum += $1 } END { print sum + 0 }')
    mkdir "$1/DEBIAN"
    (cd "$1" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$1/DEBIAN/md5sums"
    {
        printf 'Package: %s\n' "$2"
        printf 'Version: %s\n' "$version"
        printf 'Architecture: %s\n' "$debian_arch"
        printf 'Maintainer: %s\n' "$maintainer"
        printf 'Installed-Size: %s\n' "$size"
        printf '%s\n' "${@:3}"
        printf 'Homepage: %s\n' "$homepage"
    } >"$1/DEBIAN/control"
    chmod 644 "$1/DEBIAN/control" "$1/DEBIAN/md5sums"
    dated "$1"
}

copyright() {
    cat <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: pumice
Source: $repository

Files: *
Copyright: The pumice developers
License: Apache-2.0 or Expat
 The texts are in LICENSE-APACHE and LICENSE-MIT in this folder.
TEXT
}

package_deb() {
    need dpkg-deb dpkg
    local root=$work/deb doc file
    copy_stage "$root/usr" links
    doc=$root/usr/share/doc/pumice
    mv "$doc/CHANGELOG.md" "$doc/changelog"
    gzip -9 --no-name "$doc/changelog"
    compressed "$root"
    # Where Debian's zsh looks for completions of packages.
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    copyright >"$doc/copyright"
    control_of "$root" pumice \
        "Depends: libc6 (>= $glibc), libgcc-s1" \
        'Recommends: ibverbs-utils' \
        'Suggests: perftest, rdmacm-utils, wireshark' \
        'Section: net' \
        'Priority: optional' \
        'Description: RDMA network adapter that consists of software only' \
        ' Programs that use libibverbs and librdmacm run unchanged on pumice, without' \
        ' RDMA hardware, a kernel module or root rights: pumice run -- PROGRAM.' \
        ' It speaks RoCEv2 to other hosts, causes faults on purpose, writes captures' \
        ' and traces, and reports mistakes in the use of verbs.' \
        ' .' \
        ' The libraries of the system stay as they are.'
    file=$out/pumice_${version}_$debian_arch.deb
    dpkg-deb --root-owner-group -Zxz --build "$root" "$file" >/dev/null
    made "$file" 8

    root=$work/dbgsym
    debug_files "$root/usr/lib/debug"
    mkdir -p "$root/usr/share/doc"
    ln -s pumice "$root/usr/share/doc/pumice-dbgsym"
    control_of "$root" pumice-dbgsym \
        "Depends: pumice (= $version)" \
        'Section: debug' \
        'Priority: optional' \
        'Auto-Built-Package: debug-symbols' \
        'Description: debug symbols for pumice'
    file=$out/pumice-dbgsym_${version}_$debian_arch.deb
    # The files are compressed already.
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$root" "$file" >/dev/null
    made "$file" 0
}
