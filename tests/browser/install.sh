#!/usr/bin/env bash
# Provides a real headless Chromium, and what drives it, for the test of the audit's page.
#
#   CHROMIUM=... modules=$(tests/browser/install.sh)
#
# The only line on stdout is the folder with playwright-core; everything else goes to stderr. Two
# environment variables matter:
#
#   CHROMIUM             the browser (default: the command chromium; where there is none, Debian's
#                        package is installed, which needs root)
#   GPUFENCE_E2E_CACHE   where to keep playwright-core, outside the checkout
#                        (default: ${XDG_CACHE_HOME:-~/.cache}/gpufence-e2e)
#
# playwright-core brings no browser and fetches none.

set -euo pipefail

readonly version=1.65.1

log() {
  printf 'browser: %s\n' "$*" >&2
}

die() {
  log "FAILED: $*"
  exit 1
}

for needed in node npm flock; do
  command -v "$needed" >/dev/null || die "no '$needed' here; on Debian it comes with nodejs, npm or util-linux"
done
node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' ||
  die "node is $(node --version); playwright-core needs 20 or newer"

cache=${GPUFENCE_E2E_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/gpufence-e2e}
mkdir -p -- "$cache/browser"
cache=$(realpath -- "$cache/browser")
readonly modules=$cache/playwright-core-$version

exec 9>"$cache/lock"
if ! flock --nonblock 9; then
  log 'waiting for another run that installs the same'
  flock 9
fi

# Starts it, since a file's presence says nothing of the libraries that it needs.
works() {
  "${CHROMIUM:-chromium}" --version >/dev/null 2>&1
}

if ! works; then
  [[ -z ${CHROMIUM:-} ]] || die "CHROMIUM is '$CHROMIUM', which does not start"
  ((EUID == 0)) || die "no chromium here: install Debian's package of that name, or name a browser by CHROMIUM"
  log 'install the package chromium'
  apt-get --quiet update >&2
  DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install chromium fonts-dejavu-core >&2
  works || die 'the installed chromium does not start'
fi

if ! [[ -r $modules/node_modules/playwright-core/package.json ]]; then
  log "install playwright-core $version"
  work=$(mktemp -d -- "$cache/build.XXXXXX")
  trap 'rm -rf -- "$work"' EXIT
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work" "playwright-core@$version" >&2
  # One rename makes it visible at once. What stood there was not whole.
  rm -rf -- "$modules"
  mv -T -- "$work" "$modules"
fi

log "$("${CHROMIUM:-chromium}" --version 2>/dev/null) and playwright-core $version in $modules"
printf '%s\n' "$modules"
