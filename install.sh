#!/bin/sh
# Builds and installs clash and its policy compiler with cargo. A static program that is not position-independent
# starts about three times as fast as a dynamic one, so the first of these builds that
# works here is taken: for the musl target, static for this host, dynamic for this host.
set -eu
cd "$(dirname "$0")"

say() { echo "install.sh: $*" >&2; }

# True if the compiler links a static program for a target with these flags.
links() {
    probe=$(mktemp -d)
    echo 'fn main() {}' >"$probe/probe.rs"
    # shellcheck disable=SC2086 # the flags are words
    if rustc --target "$1" $2 -o "$probe/probe" "$probe/probe.rs" >"$probe/log" 2>&1 &&
        "$probe/probe"; then
        works=yes
    else
        works=no
    fi
    rm -rf "$probe"
    [ "$works" = yes ]
}

build() {
    for package in clash-compile clash-door clash; do
        cargo install --locked --path "crates/$package" "$@"
    done
    exit
}

say "the build takes some minutes: about three on four cores, seven on two"
if [ "$(uname -s)" = Linux ]; then
    target="$(uname -m)-unknown-linux-musl"
    if rustup target add "$target" >/dev/null 2>&1; then
        build --target "$target"
    fi
    # An explicit target keeps the flags away from build scripts and proc macros, which
    # the compiler has to load.
    host=$(rustc -vV | sed -n 's/^host: //p')
    flags='-C target-feature=+crt-static -C relocation-model=static'
    if links "$host" "$flags"; then
        say "no $target target here, so this is a static program for $host"
        RUSTFLAGS="$flags ${RUSTFLAGS:-}"
        export RUSTFLAGS
        build --target "$host"
    fi
    say "no static program can be linked here; a dynamic one starts more slowly"
fi
build
