#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Draws the pictures of results again from their JSON, as far as both the program and the JSON are
# there. That of frameworks (peers.svg) is drawn by peers/run.sh, with gnuplot.
#
#   bash bench/pictures.sh PROGRAMS RESULTS          such as build/release/bench bench/results
#   bash bench/pictures.sh PROGRAMS RESULTS --check  changes none, and fails if one is another
set -euo pipefail
programs=$1
results=$2
drawn=$(mktemp -d)
trap 'rm -r "$drawn"' EXIT

has() { [ -x "$programs/fovea_$1" ] && [ -e "$results/$2.json" ]; }

# draw PROGRAM JSON
draw() {
  has "$1" "$2" || return 0
  "$programs/fovea_$1" --draw "$results/$2.json" --plots "$drawn" > /dev/null
}
draw quality quality_not_causal
[ ! -e "$drawn/quality.svg" ] || mv "$drawn/quality.svg" "$drawn/quality_not_causal.svg"
for name in quality compare lengths layers scale; do draw $name $name; done

# learn PICTURE RUN SYSTEMS
learn() {
  has learning "learning_copy_$2" || return 0
  "$programs/fovea_learning" --draw "$drawn/learning_copy_$2_$1.svg" \
    --from "$results/learning_copy_$2.json" --only "$3"
}
for run in 128 128_long 256 512; do
  learn bands $run full,linear:1,fmm:1:10,fmm:1:30,strided:16,fixed:16:4,strided:32,fixed:32:8
  learn maps $run full,linear:1,linear:2,linear:3
done

if [ "${3-}" != --check ]; then
  find "$drawn" -name '*.svg' -exec cp {} "$results" \;
  exit
fi
status=0
for picture in "$results"/*.svg; do
  name=${picture##*/}
  [ "$name" = peers.svg ] || cmp "$picture" "$drawn/$name" || status=1
done
exit $status
