# The RPM packages pumice and pumice-debuginfo. Sourced by scripts/package.
#
# rpmbuild makes them, which Debian and Fedora have: it reads what the files need from other packages out of the files, as
# Fedora's own packages have it.
# shellcheck shell=bash

# rpm_built NAME FOLDER COMPRESSION: FOLDER is the root of what is installed; the rest of the specification is standard input.
rpm_built() {
    local top=$work/rpm-$1 file=$1-$version-1.$machine.rpm
    mkdir -p "$top"
    {
        printf 'Name: %s\nVersion: %s\nRelease: 1\n' "$1" "$version"
        printf 'License: MIT OR Apache-2.0\nURL: %s\n' "$homepage"
        [[ -z ${PUMICE_MAINTAINER:-} ]] || printf 'Packager: %s\n' "$PUMICE_MAINTAINER"
        # libpumice.so must not answer for libibverbs.so.1 in other packages: it is found by `pumice run` only.
        printf 'AutoProv: no\n'
        cat
    } >"$top/$1.spec"
    rpmbuild -bb --quiet --target "$machine-linux" --buildroot "$top/root" \
        --define "_topdir $top" --define "_rpmdir $top/out" --define '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
        --define "staged $2" --define '_prefix /usr' --define 'debug_package %{nil}' --define '__os_install_post %{nil}' \
        --define '_build_id_links none' --define '_buildhost localhost' --define 'source_date_epoch_from_changelog 0' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define "_binary_payload $3" --define '_source_filedigest_algorithm 8' --define '_binary_filedigest_algorithm 8' \
        "$top/$1.spec" >"$top/log" 2>&1 || {
        cat "$top/log" >&2
        fail "rpmbuild has not made $file"
    }
    mv "$top/out/$file" "$out/$file"
}

package_rpm() {
    need rpmbuild rpm
    copy_stage "$work/rpm-files/usr" links
    compressed "$work/rpm-files"
    dated "$work/rpm-files"
    rpm_built pumice "$work/rpm-files" w9.xzdio <<'SPEC'
Summary: RDMA network adapter that consists of software only
Recommends: libibverbs-utils

%description
Programs that use libibverbs and librdmacm run unchanged on pumice, without RDMA
hardware, a kernel module or root rights: pumice run -- PROGRAM. It speaks RoCEv2
to other hosts, causes faults on purpose, writes captures and traces, and reports
mistakes in the use of verbs. The libraries of the system stay as they are.

%install
cp -a %{staged}/. %{buildroot}

%files
%defattr(-,root,root)
/usr/bin/pumice
/usr/lib/pumice
%dir /usr/share/doc/pumice
%doc /usr/share/doc/pumice/CHANGELOG.md
%license /usr/share/doc/pumice/LICENSE-APACHE
%license /usr/share/doc/pumice/LICENSE-MIT
%doc /usr/share/man/man1/pumice*.1.gz
/usr/share/bash-completion/completions/pumice
/usr/share/zsh/site-functions/_pumice
/usr/share/fish/vendor_completions.d/pumice.fish
SPEC
    made "$out/pumice-$version-1.$machine.rpm" 8

    debug_files "$work/rpm-debug/usr/lib/debug"
    dated "$work/rpm-debug"
    # The files are compressed already.
    rpm_built pumice-debuginfo "$work/rpm-debug" w1.gzdio <<'SPEC'
Summary: Debug information for pumice
AutoReq: no
Requires: pumice = %{version}

%description
Debug information for pumice, where gdb finds it by build id.

%install
cp -a %{staged}/. %{buildroot}

%files
%defattr(-,root,root)
/usr/lib/debug/.build-id
SPEC
    made "$out/pumice-debuginfo-$version-1.$machine.rpm" 0
}
