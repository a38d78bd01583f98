#!/usr/bin/env bash
# Installs one package in this root, uses it as an ordinary user, and removes it. Run by scripts/accept/packages in a chroot:
#
#   inside.sh deb|tar|wheel|rpm|oci MOST-SECONDS
#
# Prints PASS or FAIL and a sentence for each thing that was tried, and END at last.
set -uo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
kind=$1
most_seconds=$2
home=/home/visitor
user=1000
[[ $kind != oci ]] || home=/home/pumice

# as_user COMMAND...: as an ordinary user, with the environment of a fresh login.
as_user() {
    # A shell between, for the folder: chroot begins in /.
    # shellcheck disable=SC2016 # expanded by the inner shell
    chroot --userspec="$user:$user" --groups= / env -i HOME="$home" PATH="$user_path" LC_ALL=C sh -c 'cd && exec "$@"' sh "$@"
}
user_path=/usr/local/bin:/usr/bin:/bin

verdict() {
    if [[ $1 == 0 ]]; then printf 'PASS  %s\n' "$2"; else printf 'FAIL  %s\n' "$2"; fi
}

# try SENTENCE COMMAND...
try() {
    local sentence=$1
    shift
    "$@"
    verdict "$?" "$sentence"
}

now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; }
# seconds_of MICROSECONDS
seconds_of() { printf '%d.%d' "$(($1 / 1000000))" "$(($1 % 1000000 / 100000))"; }

listening() {
    awk -v port="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6
}

# Two processes of the user exchange messages and compare their bytes.
pingpong() {
    local command=(ibv_rc_pingpong -d pumice0 -g 0 -c -n 500 -p 18515) server status=0
    as_user timeout 60 pumice run --log warn -- "${command[@]}" >/tmp/server 2>&1 &
    server=$!
    until listening 18515 || ! kill -0 "$server" 2>/dev/null; do sleep 0.02; done
    as_user timeout 60 pumice run --log warn -- "${command[@]}" localhost >/tmp/client 2>&1 || status=$?
    wait "$server" || status="$status, server $?"
    [[ $status == 0 ]] && grep -q '500 iters' /tmp/client && return
    cat /tmp/server /tmp/client
    return 1
}

# The files of the root but those of the kernel, of this script, and of programs that keep notes.
listing() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /packages -o -path /module -o -path /wheels -o -path /run \
        -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log \) -prune -o \
        -not -name __pycache__ -not -path '*/__pycache__/*' \
        \( -type d -printf '%p\n' -o -printf '%p %y %s %l\n' \) | sort
}

install_package() {
    case $kind in
    deb) apt-get install -y -q /packages/pumice_*.deb ;;
    tar)
        # shellcheck disable=SC2016 # expanded by the user's shell
        as_user sh -euc 'mkdir unpacked && tar -xzf /packages/pumice-*[0-9_]6*4.tar.gz -C unpacked --strip-components=1 && unpacked/install'
        ;;
    wheel) as_user sh -euc 'python3 -m venv venv && venv/bin/pip install --no-index --disable-pip-version-check /packages/pumice-*.whl' ;;
    rpm | oci) ;;
    esac
}

remove_package() {
    case $kind in
    deb) apt-get purge -y -q pumice ;;
    tar) as_user "$home/.local/lib/pumice/uninstall" && rm -rf "${home:?}/unpacked" ;;
    wheel) as_user venv/bin/pip uninstall --yes pumice && rm -rf "${home:?}/.cache" ;;
    esac
}

# What pumice has installed, and nothing else, is gone.
is_as_before() {
    # pip removes files and the folders they were in, and no folders above; no other file may be there.
    [[ $kind != wheel ]] || find "$home/venv/share" -type d -empty -delete
    listing >/tmp/after
    diff /tmp/before /tmp/after
}

case $kind in
tar) user_path=$home/.local/bin:$user_path ;;
wheel)
    user_path=$home/venv/bin:$user_path
    ;;
esac
[[ $kind == oci ]] || try 'there is no compiler' bash -c '! command -v cc gcc rustc cargo'
sha256sum /usr/lib/*/libibverbs.so.1* /usr/lib/*/librdmacm.so.1* >/tmp/libraries 2>/dev/null
if [[ $kind == oci ]]; then
    # It has no find, and stays as it is.
    : >/tmp/before
elif [[ $kind == wheel ]]; then
    # An environment that was there before is what stays after.
    as_user python3 -m venv venv && listing >/tmp/before
    rm -rf "${home:?}/venv"
else
    listing >/tmp/before
fi

begun=$(now)
if ! install_package >/tmp/install 2>&1; then
    cat /tmp/install
    verdict 1 'it is installed'
    exit
fi
installed=$(now)
pingpong
works=$?
ended=$(now)
verdict "$works" "from the package to the first ping-pong: $(seconds_of $((ended - begun))) s, of which installing takes $(seconds_of $((installed - begun))) s"
((ended - begun <= most_seconds * 1000000))
verdict "$?" "that is at most $most_seconds s"

sees_device() { as_user pumice run -- ibv_devinfo -v | grep -q 'hca_id:.*pumice0'; }
try 'ibv_devinfo shows the device' sees_device
stays_without() { ! as_user ibv_devinfo 2>/dev/null | grep -q pumice; }
try 'without pumice run, programs do not see it' stays_without
same_libraries() { sha256sum --quiet --check /tmp/libraries && ! ldconfig -p | grep -q pumice; }
try 'the libraries of the system are the same' same_libraries
doctor() { as_user pumice doctor >/tmp/doctor || { cat /tmp/doctor; return 1; }; }
try 'pumice doctor finds nothing wrong' doctor
captured() {
    as_user pumice run --capture /tmp/one.pcapng --trace /tmp/one.trace -- ibv_devinfo >/dev/null && as_user pumice capture --expect 0 /tmp/one.pcapng
}
try 'captures and traces are written' captured
checked() { as_user pumice check --check-exit 9 -- ibv_devinfo >/tmp/checked 2>&1 || { cat /tmp/checked; return 1; }; }
try 'pumice check runs, with its preload' checked
runs_rsocket() { as_user pumice run --rsocket -- sh -c 'case $LD_PRELOAD in *libpumice_rsocket.so*) ;; *) exit 1 ;; esac'; }
try 'the preload for rsockets is there' runs_rsocket
# A link to the program elsewhere finds the libraries, too.
linked() {
    local program
    program=$(as_user sh -c 'readlink -f "$(command -v pumice)"') && mkdir -p /tmp/elsewhere && ln -sf "$program" /tmp/elsewhere/linked &&
        as_user /tmp/elsewhere/linked run -- ibv_devices | grep -q pumice0
}
try 'through a link it works as well' linked

# Manual pages and completions are where man and the shells look; bash completes with its own.
case $kind in
deb) texts=/usr/share zsh_folder=vendor-completions page=pumice-run.1.gz ;;
rpm) texts=/usr/share zsh_folder=site-functions page=pumice-run.1.gz ;;
tar) texts=$home/.local/share zsh_folder=site-functions page=pumice-run.1 ;;
wheel) texts=$home/venv/share zsh_folder=site-functions page=pumice-run.1 ;;
esac
completes() {
    # shellcheck disable=SC2016 # expanded by the user's shell
    as_user bash -euc 'source "$1"; complete -p pumice >/dev/null; COMP_WORDS=(pumice expl) COMP_CWORD=1; _pumice pumice expl pumice
        printf "%s\n" "${COMPREPLY[@]}"' bash "$texts/bash-completion/completions/pumice" | grep -qx explain
}
has_texts() {
    zcat -f "$texts/man/man1/$page" | grep -q '^\.TH' && zcat -f "$texts/man/man1/$page" | grep -q 'loss' &&
        grep -q '^#compdef pumice' "$texts/zsh/$zsh_folder/_pumice" && grep -q '^complete -c pumice' "$texts/fish/vendor_completions.d/pumice.fish"
}
if [[ $kind != oci ]]; then
    try 'bash completes its commands' completes
    try 'completions of zsh and fish, and manual pages, are in their places' has_texts
fi

case $kind in
deb | rpm)
    owned_links() {
        [[ $(pumice run -- sh -c 'echo "$LD_LIBRARY_PATH"') == /usr/lib/pumice/pumice-links ]]
    }
    try 'the links are those of the package' owned_links
    find /usr -newer /tmp/install -path '*pumice*' >/tmp/written
    [[ ! -s /tmp/written ]]
    verdict "$?" 'using it as root writes nothing below /usr'
    ;;
tar)
    elsewhere() {
        as_user sh -euc 'unpacked/install "$HOME/my programs" && mv "my programs" moved && moved/bin/pumice run -- ibv_devices' |
            grep -q pumice0 && as_user moved/lib/pumice/uninstall && [[ ! -e $home/moved ]]
    }
    try 'it may be moved after it was installed' elsewhere
    again() { as_user unpacked/install && as_user pumice --version; }
    try 'it is installed over itself' again
    refuses() {
        as_user sh -c 'mkdir -p other/bin && echo mine >other/bin/pumice && unpacked/install other' 2>/tmp/refused
        [[ $? == 1 && $(cat "$home/other/bin/pumice") == mine ]] && grep -q "other/bin/pumice is there" /tmp/refused && rm -r "$home/other"
    }
    try 'a program of another origin is not overwritten' refuses
    keeps() {
        as_user sh -euc 'mkdir -p kept/share/fish/vendor_completions.d && echo mine >kept/share/fish/vendor_completions.d/pumice.fish
            unpacked/install kept && test -f kept/share/man/man1/pumice.1 && kept/lib/pumice/uninstall' >/dev/null &&
            [[ $(cd "$home/kept" && find . -type f) == ./share/fish/vendor_completions.d/pumice.fish ]] && rm -r "$home/kept"
    }
    try 'a completion that is there stays, when it is installed and when it is removed' keeps
    read_only() { as_user unpacked/install /usr 2>/tmp/refused; [[ $? == 1 ]] && grep -q 'name a folder of your own' /tmp/refused; }
    try 'a folder that may not be written is refused' read_only
    ;;
wheel)
    module() {
        as_user venv/bin/python -c 'import pumice; pumice.run(["ibv_devices"], check=True)' | grep -q pumice0 &&
            as_user venv/bin/python -m pumice run -- ibv_devices | grep -q pumice0
    }
    try 'the Python module runs programs' module
    if compgen -G '/wheels/pytest-*.whl' >/dev/null; then
        pytest() {
            as_user sh -euc 'python3 -m venv testing
                testing/bin/pip install --no-index --disable-pip-version-check --quiet --find-links /wheels pytest /packages/pumice-*.whl
                cp -r /module/tests own-tests
                cd own-tests && PATH=$HOME/testing/bin:$PATH ../testing/bin/python -m pytest -q -p no:cacheprovider . ' \
                >/tmp/pytest 2>&1
            local status=$?
            rm -rf "${home:?}/testing" "$home/own-tests"
            [[ $status == 0 ]] || cat /tmp/pytest
            return "$status"
        }
        try 'the tests of the Python module pass' pytest
        tail -n 1 /tmp/pytest
    fi
    ;;
esac

case $kind in
deb | tar | wheel)
    try 'it is removed' remove_package >/tmp/removed
    cat /tmp/removed
    try 'nothing of it stays' is_as_before
    ;;
esac
printf 'END\n'
