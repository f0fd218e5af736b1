#!/usr/bin/env bash
# Which folder holds the kube-apiserver and etcd that tests and the demo start?
# In: this Go module, UPRIVER_CACHE_DIR or XDG_CACHE_HOME, optionally KUBEBUILDER_ASSETS. Out: the folder on stdout.
# Builds them when they are missing; a second run waits for the first one instead of building again. With --check it
# builds nothing, and its exit code says whether they are there.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=go.sh
source "$here/go.sh"
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit } $1 == "require" && $2 == "k8s.io/kubernetes" { print $3; exit }' "$here/go.mod")

say() { printf '%s\n' "$*" >&2; }
die() { say "tests/tools/build.sh: $*"; exit 1; }

check_only=no
if [[ ${1:-} == --check ]]; then
    check_only=yes
    exec >/dev/null
fi

if [[ -n ${KUBEBUILDER_ASSETS:-} && -x $KUBEBUILDER_ASSETS/kube-apiserver && -x $KUBEBUILDER_ASSETS/etcd ]]; then
    printf '%s\n' "$KUBEBUILDER_ASSETS"
    exit 0
fi

[[ -n $version ]] || die "go.mod does not require k8s.io/kubernetes"
hash=$(cat "$here/go.mod" "$here/go.sum" "$here/etcd/main.go" | sha256sum | cut -c1-12)
servers=${UPRIVER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/upriver}/servers
target=$servers/$version-$hash

present() { [[ -x $target/kube-apiserver && -x $target/etcd ]]; }

if present; then
    printf '%s\n' "$target"
    exit 0
fi

if [[ $check_only == yes ]]; then exit 1; fi

# Every Go since 1.21 fetches the toolchain that go.mod asks for, unless GOTOOLCHAIN=local forbids it.
go=$(find_go) || {
    find_go >/dev/null || true # once more in this shell, for go_found
    die "found $go_found, Go 1.$needed_minor or later is needed (or any since 1.$fetching_minor without GOTOOLCHAIN=local): https://go.dev/dl"
}

mkdir -p "$servers"
# The lock lives on this descriptor and is released when the script ends, however it ends. The builds do not inherit it.
exec 9>"$servers/.lock"
if ! flock --nonblock 9; then
    say "another run is building kube-apiserver and etcd, waiting for it"
    flock 9
fi
if present; then
    printf '%s\n' "$target"
    exit 0
fi

work=$(mktemp -d "$servers/.building.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
minor=${version#v1.}
minor=${minor%%.*}
pkg=k8s.io/component-base/version
flags="-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=$minor"
build() { "$go" -C "$here" build -trimpath -ldflags "$flags" -o "$work/$1" "$2" 9>&-; }

say "building etcd, first time only, about 30 seconds on 2 cores"
build etcd ./etcd
say "building kube-apiserver $version, first time only, about 4 minutes on 2 cores"
build kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver

chmod 755 "$work"
rm -rf -- "$target"
mv -- "$work" "$target"
say "servers are in $target"
printf '%s\n' "$target"
