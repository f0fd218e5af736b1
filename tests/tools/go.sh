# shellcheck shell=bash
# Which Go builds the servers? Sourced by the scripts beside it. `find_go` prints the first that will do: 1.26 or later,
# or any since 1.21 that may fetch a newer toolchain by itself. `go_found` then names what was seen instead.

needed_minor=26
fetching_minor=21
go_found="no Go"

find_go() {
    local candidate version minor
    for candidate in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
        [[ -x $candidate ]] || continue
        # Asked outside of any module: inside ours it would go and fetch the toolchain first.
        version=$(cd / && "$candidate" version 2>/dev/null) || continue
        minor=$(sed -nE 's/^go version go1\.([0-9]+).*/\1/p' <<<"$version")
        [[ -n $minor ]] || continue
        if ((minor >= needed_minor)) || { ((minor >= fetching_minor)) && may_fetch "$candidate"; }; then
            printf '%s\n' "$candidate"
            return 0
        fi
        go_found="Go 1.$minor"
        if ((minor >= fetching_minor)); then go_found+=" with GOTOOLCHAIN=local"; fi
    done
    return 1
}

may_fetch() {
    [[ $(cd / && "$1" env GOTOOLCHAIN) != local ]]
}
