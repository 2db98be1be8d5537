#!/usr/bin/env bash
# Fails if two of the objects define the same weak symbol of fovea: the linker keeps one of them.
# usage: symbols.sh OBJECT...
set -euo pipefail

for object in "$@"; do
  nm --defined-only "$object" | awk '$2 ~ /^[WVu]$/ && $3 ~ /5fovea/ { print $3 }' | sort -u
done | sort | uniq -c | awk '
  $1 > 1 { shared++; print $2 }
  END {
    printf "%d symbols of fovea are in several objects, of %d\n", shared, NR
    exit shared > 0 || NR == 0
  }'
