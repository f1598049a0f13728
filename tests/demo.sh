#!/usr/bin/env bash
# Starts the server on free ports, sends three recorded AdmissionReviews with curl, and shows each answer,
# its patch decoded; then the same in audit mode, where nothing is changed and nothing denied.
# Usage: demo.sh PROGRAM
set -euo pipefail

program=${1:?usage: demo.sh PROGRAM}
reviews="$(dirname "$0")/cases/admission-reviews"
work=$(mktemp -d)
server=
stop() {
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
        server=
    fi
}
trap 'stop; rm -rf "$work"' EXIT

command -v curl >/dev/null || { echo "demo: curl is not installed" >&2; exit 1; }

# start MODE: serves the built-in contract in this mode and waits until it is ready.
start() {
    env --unset=GPUFENCE_CONFIG GPUFENCE__MODE="$1" GPUFENCE__SERVER__LISTEN=127.0.0.1:0 GPUFENCE__SERVER__METRICS=127.0.0.1:0 \
        GPUFENCE__LOG__FORMAT=json "$program" serve 2>"$work/log" &
    server=$!
    for _ in $(seq 100); do
        if grep -q '"message":"ready"' "$work/log"; then
            https=$(sed -n 's/.*"message":"ready".*"https":"\([^"]*\)".*/\1/p' "$work/log")
            metrics=$(sed -n 's/.*"message":"ready".*"metrics":"\([^"]*\)".*/\1/p' "$work/log")
            return
        fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    echo "demo: the server did not start:" >&2
    cat "$work/log" >&2
    exit 1
}

# ask WEBHOOK FILE: sends a review and prints the answer.
ask() {
    local answer patch
    answer=$(curl --silent --show-error --insecure --data-binary "@$reviews/$2" \
        --header 'Content-Type: application/json' "https://$https/$1?timeout=10s")
    echo "  POST /$1"
    printf '%s\n' "$answer" | pretty
    patch=$(printf '%s' "$answer" | sed -n 's/.*"patch":"\([^"]*\)".*/\1/p')
    if [[ -n $patch ]]; then
        echo "  the patch, decoded:"
        printf '%s' "$patch" | base64 --decode | pretty
    fi
}

# Indented JSON where python3 is there, as it is otherwise.
pretty() {
    if command -v python3 >/dev/null; then python3 -m json.tool; else cat; echo; fi | sed 's/^/    /'
}

show() {
    echo
    echo "A pod that requests nvidia.com/gpu, in the allowed namespace ml-team:"
    ask mutate mutate-create-pod-gpu-pod.json
    echo
    echo "A pod with a toleration of the GPU taint, in the namespace web, which is not allowed:"
    ask validate mutate-create-pod-sneaky.json
    echo
    echo "An ordinary pod:"
    ask validate mutate-create-pod-legacy.json
}

echo "=== mode: enforce"
start enforce
show
stop

echo
echo "=== mode: audit: nothing is changed and nothing denied; what would have been is recorded"
start audit
show
echo
echo "The log:"
grep '"target":"gpufence::decision"' "$work/log" | sed 's/^/    /'
echo
echo "The metrics:"
curl --silent --show-error "http://$metrics/metrics" | grep '^gpufence_decisions_total' | sed 's/^/    /'
stop
