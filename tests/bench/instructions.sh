#!/usr/bin/env bash
# Instructions for one review, by callgrind: the difference between 10 and 110 of them, divided by 100,
# so that start-up does not count.
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
    few=$(count "$case" 10)
    many=$(count "$case" 110)
    each=$(((many - few) / 100))
    bytes=$(cat "$out/bytes")
    printf '%-16s %10s %22s %14s\n' "$case" "$bytes" "$each" "$(awk "BEGIN { printf \"%.2f\", $each / $bytes }")"
done
