#!/usr/bin/env bash
# Is everything here that builds and the demo need, with --chaos what that lane likes besides, with --tests what all tests
# need? In: this machine. Out: nothing if so. What is missing is installed with apt-get where this user may do that;
# otherwise the command to type is printed, and the exit code is 1.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=go.sh
source "$here/go.sh"
cd -- "$here/../.."

say() { printf '%s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1 || [[ -x /usr/sbin/$1 ]]; }

for_tests=no
for_chaos=no
case ${1:-} in
--tests) for_tests=yes for_chaos=yes ;;
--chaos) for_chaos=yes ;;
esac

missing=()  # Debian packages
problems=() # what no package mends

check_programs() {
    missing=()
    have git || missing+=(git)
    # aws-lc-sys, the cryptography below TLS, is C. It needs neither cmake nor Go.
    have cc || missing+=(gcc libc6-dev)
    have make || missing+=(make)
    have redis-server || missing+=(redis-server)
    have setpriv || missing+=(util-linux)
    have flock || missing+=(util-linux)
    # PyYAML is put into a venv. Debian takes pip out of Python itself and into this package.
    if [[ $for_tests == yes ]] && ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then
        missing+=(python3 python3-venv)
    fi
    [[ -e /etc/ssl/certs/ca-certificates.crt || -d /etc/pki || -n ${SSL_CERT_FILE:-} ]] || missing+=(ca-certificates)
}

# Go is needed once: to build the servers, and for tests the oracles. KUBEBUILDER_ASSETS spares only the first of these.
# Where python3 is still missing, the oracles are too.
go_is_needed() {
    if "$here/build.sh" --check && { [[ $for_tests == no ]] || "$here/oracles.sh" --check; }; then return 1; fi
    ! find_go >/dev/null
}

# The package with a Go that will do, out of what apt knows.
go_package() {
    local minor
    minor=$(apt-cache policy golang-go | sed -nE 's/^ +Candidate: ([0-9]+:)?1\.([0-9]+).*/\2/p')
    if [[ -n $minor ]] && ((minor >= fetching_minor)); then
        printf 'golang-go\n'
        return
    fi
    apt-cache search --names-only '^golang-1\.[0-9]+-go$' | sed -nE 's/^golang-1\.([0-9]+)-go .*/\1/p' |
        sort -n | awk -v least="$fetching_minor" '$1 >= least { last = $1 } END { if (last) print "golang-1." last "-go" }'
}

check_rust() {
    local channel
    channel=$(sed -nE 's/^channel *= *"(.*)"$/\1/p' rust-toolchain.toml)
    if ! have cargo; then
        problems+=("Rust is missing: install rustup from https://rustup.rs, then run this again")
    elif ! { cargo --version && cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
        if ! have rustup; then
            problems+=("cargo is not Rust $channel with rustfmt and clippy, and there is no rustup to get it: https://rustup.rs")
        else
            say "installing Rust $channel with rustfmt and clippy"
            rustup toolchain install "$channel" --profile minimal --component rustfmt --component clippy >&2 ||
                problems+=("rustup could not install Rust $channel, see above")
        fi
    fi
}

# Prints what to put before apt-get; fails if this user cannot install anything.
as_root() {
    if ((EUID == 0)); then
        printf 'env\n'
    elif have sudo && sudo -n true 2>/dev/null; then
        printf 'sudo\n'
    else
        return 1
    fi
}

install_missing() {
    local root packages redis=no
    if ! have apt-get; then
        problems+=("these Debian packages are missing, install what your system calls them: ${missing[*]}")
        return
    fi
    if ! root=$(as_root); then
        problems+=("run: sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}")
        return
    fi
    packages=("${missing[@]}")
    [[ " ${packages[*]} " != *" redis-server "* ]] || redis=yes
    say "installing ${packages[*]}"
    "$root" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2 ||
        { problems+=("apt-get could not install ${packages[*]}, see above"); return; }
    # Debian starts it as a service at once. Tests start their own, so the one that came with the package is stopped.
    if [[ $redis == yes ]]; then
        "$root" service redis-server stop >/dev/null 2>&1 || true
        if have systemctl; then "$root" systemctl disable redis-server >/dev/null 2>&1 || true; fi
    fi
}

# One fault of the chaos lane shifts the clock of a process. Without this library the lane leaves it out and says so; that is
# no error here.
install_faketime() {
    local root
    if compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null; then return; fi
    if have apt-get && root=$(as_root); then
        update_lists
        say "installing faketime"
        "$root" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends faketime >&2 || true
    fi
}

update_lists() {
    local root
    if have apt-get && root=$(as_root); then
        say "reading the package lists"
        "$root" apt-get update -qq >&2 || say "the package lists cannot be read; going on with what is known"
    fi
}

say_go() {
    local codename=
    if grep -qs '^ID=debian$' /etc/os-release; then
        codename=$(sed -nE 's/^VERSION_CODENAME=(.*)$/\1/p' /etc/os-release)
    fi
    problems+=("Go 1.$fetching_minor or later is needed once, to build $(what_needs_go), found: $go_found.
  Take it from https://go.dev/dl (unpacked to /usr/local/go it is found there)${codename:+, or from the backports of Debian:
    echo 'deb http://deb.debian.org/debian $codename-backports main' | sudo tee /etc/apt/sources.list.d/backports.list
    sudo apt-get update && sudo apt-get install -t $codename-backports golang-go}
  KUBEBUILDER_ASSETS may name a folder that holds kube-apiserver and etcd; these are not built then.")
}

what_needs_go() {
    local things=()
    "$here/build.sh" --check || things+=("kube-apiserver and etcd")
    if [[ $for_tests == yes ]] && ! "$here/oracles.sh" --check; then things+=("tests/tools/oracle"); fi
    printf '%s' "${things[0]:-}"
    ((${#things[@]} < 2)) || printf ', and %s' "${things[1]}"
}

check_programs
find_go >/dev/null || true # for go_found
wants_go=no
if go_is_needed; then wants_go=yes; fi
if ((${#missing[@]} > 0)) || [[ $wants_go == yes ]]; then
    update_lists
    if [[ $wants_go == yes ]] && have apt-cache; then
        package=$(go_package)
        if [[ -n $package ]]; then
            missing+=("$package")
            wants_go=no
        fi
    fi
    if ((${#missing[@]} > 0)); then install_missing; fi
    if [[ $wants_go == yes ]]; then say_go; fi
fi
if [[ $for_chaos == yes ]]; then install_faketime; fi
check_rust

if ((${#problems[@]} > 0)); then
    for problem in "${problems[@]}"; do say "tests/tools/deps.sh: $problem"; done
    exit 1
fi
