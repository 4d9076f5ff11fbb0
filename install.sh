#!/bin/sh
# Builds and installs clash and its policy compiler with cargo: as static programs
# where the musl target can be had (they start about three times as fast), else for
# the host.
set -eu
cd "$(dirname "$0")"
target="$(uname -m)-unknown-linux-musl"
if [ "$(uname -s)" = Linux ] && rustup target add "$target" >/dev/null 2>&1; then
    set -- --target "$target"
else
    echo "install.sh: no $target target here, building for the host instead" >&2
    set --
fi
for package in clash-compile clash; do
    cargo install --quiet --locked --path "crates/$package" "$@"
done
