#!/usr/bin/env bash
# Goes the way of deploy/Containerfile without a container engine: builds from the files that it copies and no
# others, for musl, checks that the result is static, and runs it as the image's user in a root that holds nothing
# but the image's files.
# Usage: static.sh [PROFILE] (default: dev; the image is built with release)
set -euo pipefail

profile=${1:-dev}
root=$(realpath -- "$(dirname -- "$0")/../..")
file=$root/deploy/Containerfile
target=$(uname -m)-unknown-linux-musl
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
server=

die() {
    echo "static: FAILED: $*" >&2
    exit 1
}
stop() {
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
}
trap 'stop; rm -rf -- "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# What COPY takes from the context in all stages: all words between COPY and the destination.
mapfile -t context < <(sed -n 's/^COPY \([^-].*\) [^ ]*$/\1/p' "$file" | tr ' ' '\n' | sort -u)
[[ " ${context[*]} " == *" src "* ]] || die "$file copies no src; it copies: ${context[*]}"
for entry in "${context[@]}"; do
    grep -qxF "!$entry" "$file.dockerignore" ||
        die "$file copies $entry, which $file.dockerignore does not let through; add the line !$entry"
done
user=$(sed -n 's/^USER //p' "$file")
entrypoint=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]$/\1/p' "$file")
command=$(sed -n 's/^CMD \["\(.*\)"\]$/\1/p' "$file")
last=$(sed -n 's/^FROM //p' "$file" | tail -n 1)
[[ $last == scratch ]] || die "the last stage of $file starts from $last; valid is scratch, which has no shell"
[[ $user =~ ^[1-9][0-9]*:[1-9][0-9]*$ ]] ||
    die "the user of $file is '$user'; valid are two numbers other than 0, since runAsNonRoot refuses names"
[[ $entrypoint == /gpufence && $command == serve ]] || die "$file starts '$entrypoint $command'; expected '/gpufence serve'"

if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$target ]]; then
    command -v rustup >/dev/null || die "no std for $target here and no rustup to install it"
    rustup target add "$target" || die "rustup could not install the std of $target; see its output above"
fi
# What the cc crate asks for by itself. ring's C needs nothing of a libc that is not in both.
if ! command -v musl-gcc >/dev/null; then
    echo "static: no musl-gcc here (Debian: musl-tools); cc compiles the C parts with this machine's headers"
    export "CC_${target//-/_}"=cc
fi
mkdir "$work/context" "$work/root"
(cd "$root" && cp -R -- "${context[@]}" "$work/context")
echo "static: build ${context[*]} for $target, profile $profile"
(cd "$work/context" && cargo build --profile "$profile" --locked --bin gpufence --target "$target")
folder=$profile
[[ $profile != dev ]] || folder=debug
program=$CARGO_TARGET_DIR/$target/$folder/gpufence

if readelf --program-headers --dynamic --wide "$program" | grep -E 'INTERP|\(NEEDED\)'; then
    die "$program is not static: it names an interpreter or libraries, above"
fi
cp -- "$program" "$work/root$entrypoint"
chmod 0555 "$work/root" "$work/root$entrypoint"
# Where mktemp made a folder for the owner alone, the image's user could not enter it.
chmod 0711 "$work"

# As root by name; everyone else in a user namespace, where only one user can be mapped.
inside=(chroot --userspec="$user" "$work/root")
if ((EUID != 0)); then
    user="the caller"
    inside=(unshare --map-root-user chroot "$work/root")
    echo "static: not root here: run as this user in the empty root, not as the image's user"
fi
version=$("${inside[@]}" "$entrypoint" --version) || die "$program does not run in an empty root"
env -i GPUFENCE__SERVER__LISTEN=127.0.0.1:0 GPUFENCE__SERVER__METRICS=127.0.0.1:0 GPUFENCE__LOG__FORMAT=json \
    PATH="$PATH" "${inside[@]}" "$entrypoint" "$command" 2>"$work/log" &
server=$!
for _ in $(seq 100); do
    if grep -q '"message":"ready"' "$work/log"; then
        metrics=$(sed -n 's/.*"message":"ready".*"metrics":"\([^"]*\)".*/\1/p' "$work/log")
        [[ $(curl --silent --show-error --fail "http://$metrics/readyz") == ok ]] || die "/readyz does not answer ok"
        echo "static: $version, $(stat -c %s "$program") bytes, static, ready as $user in a root with nothing but $entrypoint"
        exit 0
    fi
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
cat "$work/log" >&2
die "'$entrypoint $command' did not become ready in an empty root; its log is above"
