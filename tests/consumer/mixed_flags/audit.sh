#!/usr/bin/env bash
# Fails if a baseline object defines a weak function outside the namespaces of the higher levels
# that holds instructions beyond x86-64's baseline: the linker may hand it to any other unit.
# usage: audit.sh OBJECT
set -euo pipefail

{ nm --defined-only "$1"; echo; objdump -d --no-show-raw-insn "$1"; } | awk '
  # First nm: address, kind, name.
  $2 ~ /^[WVu]$/ && NF == 3 { weak[$3] = 1; next }
  # Then objdump: a line "address <name>:" before the instructions of each function.
  /^[0-9a-f]+ <.*>:$/ {
    name = $2
    gsub(/[<>:]/, "", name)
    audited = (name in weak) && name !~ /N(K)?5fovea[0-9]+v[0-9]+_[0-9]+[a-z0-9_]*(2v[34]|7v4_bf16)/
    seen += audited
    next
  }
  # VEX and EVEX names begin with v or k; the others are those of BMI and LZCNT.
  audited && $2 ~ /^(v[a-z]|k[a-z]|andn[lq]?$|bextr|bls|mulx|pdep|pext|rorx|sarx|shlx|shrx|bzhi|lzcnt)/ {
    if (!(name in wide)) { found++; print name ": " $2 }
    wide[name] = 1
  }
  END {
    printf "%d of %d functions that the linker may merge contain wide instructions\n", found, seen
    exit found > 0 || seen == 0
  }'
