#!/usr/bin/env bash
# Provides a real etcd and kube-apiserver for the end-to-end tests.
#
#   KUBEBUILDER_ASSETS=$(tests/e2e/assets.sh)
#
# The only line on stdout is the folder with the two binaries; everything else
# goes to stderr. Two environment variables matter:
#
#   KUBEBUILDER_ASSETS   a folder that has both binaries, for instance of a
#                        newer version: it is taken and nothing is built
#   GPUFENCE_E2E_CACHE   where to keep what is built, outside the checkout
#                        (default: ${XDG_CACHE_HOME:-~/.cache}/gpufence-e2e)
#
# Debian ships no kube-apiserver, but its source package of kubernetes is the
# whole upstream release with its vendored dependencies. So an apt mirror is
# all the network that a build needs: no container registry, no Go proxy.
# Nothing is installed and no root is needed: packages are unpacked into the
# cache, which also keeps etcd-server's service from ever being started.

set -euo pipefail

# These belong together: another suite has another kubernetes, which wants
# another Go.
readonly suite=bookworm
readonly go_version=1.19
# To be raised by each change to what is built, so that no cache keeps serving
# what an older script built.
readonly recipe=1

work=''
step='start'

log() {
  printf 'e2e assets: %s\n' "$*" >&2
}

begin() {
  step=$1
  log "$step"
}

die() {
  log "FAILED at step '$step': $*"
  # Said already: keeps the exit trap from saying it again.
  step=''
  exit 1
}

at_exit() {
  local status=$?
  trap - EXIT
  # No build folder outlives its run, above all not its _output: a later make
  # would take a truncated generator or binary in it for up to date.
  if [[ -n $work ]]; then
    rm -rf -- "$work"
  fi
  if ((status != 0)) && [[ -n $step ]]; then
    log "FAILED at step '$step' with exit status $status; see its output above"
  fi
  exit "$status"
}
trap at_exit EXIT
# Without handlers of their own, these would end bash past the EXIT trap.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Runs both, since a file's presence says nothing of its architecture or of a
# libc that it can run with.
works() {
  "$1/etcd" --version >/dev/null 2>&1 &&
    "$1/kube-apiserver" --version >/dev/null 2>&1
}

report() {
  local etcd_version
  etcd_version=$("$1/etcd" --version)
  log "$("$1/kube-apiserver" --version) and ${etcd_version%%$'\n'*} in $1"
  printf '%s\n' "$1"
}

if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
  step='use KUBEBUILDER_ASSETS'
  # Building another version than the one asked for would hide a typo.
  works "$KUBEBUILDER_ASSETS" ||
    die "no working etcd and kube-apiserver in $KUBEBUILDER_ASSETS; unset it to have them built"
  # Absolute, since the printed folder is used from other working folders.
  report "$(realpath -- "$KUBEBUILDER_ASSETS")"
  exit 0
fi

step='open the cache'
cache=${GPUFENCE_E2E_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/gpufence-e2e}
mkdir -p -- "$cache"
cache=$(realpath -- "$cache")
readonly cache
readonly assets=$cache/bin-$recipe

if works "$assets"; then
  report "$assets"
  exit 0
fi

step='look for the commands needed'
for needed in apt-get dpkg-deb flock make tar; do
  command -v "$needed" >/dev/null ||
    die "no '$needed' here; on Debian it comes with the packages apt, dpkg, util-linux, make and tar"
done

step='take the lock'
exec 9>"$cache/lock"
if ! flock --nonblock 9; then
  log 'waiting for another run that builds in the same cache'
  flock 9
  if works "$assets"; then
    report "$assets"
    exit 0
  fi
fi
SECONDS=0

# Safe under the lock: these are what killed runs left, never a live one's.
rm -rf -- "$cache"/build.*
work=$(mktemp -d -- "$cache/build.XXXXXX")
cd -- "$work"
mkdir -p apt/lists/partial apt/cache/archives/partial debs root src stub out

begin 'find a Debian mirror'
# apt itself is asked, offline, what the machine's own sources are: it reads
# both of their formats, and no mirror's name has to stand here.
mirrors=$(apt-get --print-uris update |
  sed -n "s|^'\(.*\)/dists/$suite/InRelease' .*|\1|p" | sort -u)
[[ -n $mirrors ]] ||
  die "the machine's apt sources name no mirror of Debian's suite '$suite'"

# Named where it exists, since many machines trust the archive's keys by such an
# option in their sources alone; without it, apt takes the keys it always trusts.
signed_by=''
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [[ -r $keyring ]]; then
  signed_by="[signed-by=$keyring] "
fi
while IFS= read -r mirror; do
  printf '%s %s%s %s main\n' \
    deb "$signed_by" "$mirror" "$suite" \
    deb-src "$signed_by" "$mirror" "$suite"
done <<<"$mirrors" >apt/sources.list

# Lists, caches and sources of the script's own: the machine's stay untouched,
# and need not offer source packages. apt cannot become its sandbox user, who
# may not enter a folder in somebody's home.
apt_own() {
  apt-get --quiet \
    -o Dir::Etc::SourceList="$work/apt/sources.list" \
    -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::Lists="$work/apt/lists" \
    -o Dir::Cache="$work/apt/cache" \
    -o APT::Sandbox::User="$(id -un)" \
    -o Acquire::Languages=none \
    -o Acquire::Retries=3 \
    "$@" >&2
}

begin "read the package lists of $suite"
apt_own --error-on=any update

begin "download etcd and Go $go_version"
(cd debs && apt_own download etcd-server \
  "golang-$go_version-go" "golang-$go_version-src" \
  golang-github-modern-go-reflect2-dev)

begin 'download the kubernetes source'
# Only the download: apt checks it against the signed lists, while unpacking it
# with dpkg-source would add Debian's patches, which are kubectl's alone.
(cd debs && apt_own --download-only source kubernetes)

begin 'unpack'
for deb in debs/*.deb; do
  dpkg-deb --extract "$deb" root
done
tar -xzf debs/kubernetes_*.orig.tar.gz -C src --strip-components=1 --no-same-owner
rm -rf -- debs apt

# The reflect2 1.0.1 that kubernetes 1.20 vendors calls a function inside Go by
# the signature that it had before Go 1.18. That compiles, starts, passes
# readyz, and then corrupts memory: one request after the other panics. 1.0.2 is
# the same interface with the new signature.
rm -rf -- src/vendor/github.com/modern-go/reflect2
cp -R -- root/usr/share/gocode/src/github.com/modern-go/reflect2 \
  src/vendor/github.com/modern-go/

# kubernetes' make uses rsync only to copy finished binaries within its
# _output. This saves unpacking rsync and the libraries that it links.
cat >stub/rsync <<'STUB'
#!/bin/sh
set -eu
while [ "$#" -gt 2 ]; do shift; done
exec cp -p -- "$1" "$2"
STUB
chmod +x stub/rsync

begin 'build kube-apiserver (some minutes)'
# A clean environment: GOFLAGS, GOROOT, KUBE_* or MAKEFLAGS of the caller must
# not change what is built. -s -w drop debug information that no test reads.
env -i \
  HOME="$work" \
  TMPDIR="$work" \
  LC_ALL=C \
  PATH="$work/stub:$work/root/usr/lib/go-$go_version/bin:$PATH" \
  GO111MODULE=off \
  CGO_ENABLED=0 \
  GOLDFLAGS='-s -w' \
  make -C src WHAT=cmd/kube-apiserver >&2

step='put the binaries in place'
cp -- src/_output/bin/kube-apiserver root/usr/bin/etcd out/
works "$work/out" || die 'the new binaries do not run on this machine'
# One rename makes both visible at once. What stood there did not work.
rm -rf -- "$assets"
mv -T -- out "$assets"

log "built in $SECONDS s"
report "$assets"
