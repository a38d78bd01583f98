# What can be said of the RPM package without a Fedora: what it asks for and offers, and that its files work where rpm puts
# them. Sourced by scripts/accept/packages.
# shellcheck shell=bash

rpm_package=$(echo "$packages"/pumice-[0-9]*.rpm)
rpm -qp --requires "$rpm_package" >"$logs/rpm-requires" 2>&1
# Before glibc 2.34 it was in several files.
if grep -vxE '(libc|libm|libdl|libpthread|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.[0-9]+(\(.*\))?|rpmlib\(.*|rtld\(GNU_HASH\)' "$logs/rpm-requires" >"$logs/rpm-other"; then
    fail 'rpm: it needs other packages than the C library and libgcc' "$logs/rpm-other"
else
    pass 'rpm: it needs the C library and libgcc only'
fi
rpm -qp --provides "$rpm_package" >"$logs/rpm-provides" 2>&1
if grep -q 'libibverbs\|librdmacm' "$logs/rpm-provides"; then
    fail 'rpm: it would be taken for rdma-core' "$logs/rpm-provides"
else
    pass 'rpm: it does not offer libibverbs to other packages'
fi
# The database of this root knows no C library, so that dependencies cannot be checked there.
rpm_root=$work/rpm-root
rm -rf "$rpm_root"
cp -a --reflink=auto "$roots/bookworm" "$rpm_root"
if rpm --root "$rpm_root" --dbpath /var/lib/rpm --nodeps --ignoreos --ignorearch -i "$rpm_package" >"$logs/rpm-install" 2>&1; then
    tried_alone rpm "$rpm_root"
else
    fail 'rpm: rpm -i' "$logs/rpm-install"
fi
rm -rf "$rpm_root"
