#!/usr/bin/env bash
# Instructions for one review, by callgrind: the difference between 10 and 110 of them, divided by 100,
# so that start-up does not count. Where start-up reads thousands of nodes it differs from run to run by more than a
# hundred reviews cost: then it is thousands of reviews as well.
set -euo pipefail

program=${1:?usage: instructions.sh PROGRAM}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

count() {
    valgrind --tool=callgrind --callgrind-out-file="$out/callgrind" "$program" "$1" "$2" 2>&1 >"$out/bytes" |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

printf '%-16s %10s %22s %14s\n' review bytes 'instructions/review' 'per byte'
for case in ordinary-3KB ordinary-20KB ordinary-200KB gpu-3KB gpu-20KB gpu-200KB few-3KB many-3KB; do
    case "$case" in
    few-* | many-*) repeats=5000 ;;
    *) repeats=100 ;;
    esac
    few=$(count "$case" 10)
    many=$(count "$case" $((10 + repeats)))
    each=$(((many - few) / repeats))
    bytes=$(cat "$out/bytes")
    printf '%-16s %10s %22s %14s\n' "$case" "$bytes" "$each" "$(awk "BEGIN { printf \"%.2f\", $each / $bytes }")"
done
