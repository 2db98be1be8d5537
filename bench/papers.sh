#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes bench/papers.md: trains the models that it speaks of, draws their losses, and puts all figures
# into the page. A run that was interrupted goes on from its checkpoint (build/learning), and one that
# is finished is not repeated.
#
#   bash bench/papers.sh                       short form: small models
#   bash bench/papers.sh short RUN...          of the short form only these, such as copy_128
#   bash bench/papers.sh long [RUN...]         the papers' sizes: into build/learning/long
#   bash bench/papers.sh figures               trains nothing
#
# The text task reads the topics of Debian's package fortunes, from $FORTUNES or
# /usr/share/games/fortunes; without them it is left out.
set -euo pipefail
cd "$(dirname "$0")/.."

form=${1:-short}
case $form in
  short | long | figures) ;;
  *) echo "papers.sh: '$form' is not one of short, long, figures" >&2; exit 2 ;;
esac
shift $(($# < 1 ? $# : 1))
runs=" $* "
results=bench/results
[ "$form" = long ] && results=build/learning/long
program=build/compare/bench/fovea_learning
commit=$(git rev-parse --short HEAD 2> /dev/null || echo unknown)

cmake --preset compare > /dev/null
cmake --build build/compare --target fovea_learning fovea_layers
mkdir -p "$results"

# wanted NAME: whether the command line names the run, or none.
wanted() { [[ $runs == "  " || $runs == *" $1 "* ]]; }

# learn NAME option...: writes learning_NAME.json and its log.
learn() {
  local name=$1
  shift
  wanted "$name" || return 0
  echo "== $name"
  local checkpoints=build/learning/checkpoints-$form-$name
  [ -d "$checkpoints" ] || rm -f "$results/learning_$name.log"
  "$program" "$@" --commit "$commit" --checkpoints "$checkpoints" \
    --json "$results/learning_$name.json" | tee -a "$results/learning_$name.log"
}

copies=full,linear:1,fmm:1:10,fmm:1:30,linear:2,linear:3
list_systems=full,local:20,linear:1,fmm:2:5,smart_bird:20,fsat:4
policies=smart_bird_inverse_log:20,smart_bird_raw:20,smart_bird_top_k:20,smart_bird_random:20
ablations=fsat:2,fsat:8,fsat_no_truncation:4,fsat_random:4,fsat_predicted:4
fortunes=${FORTUNES:-/usr/share/games/fortunes}
topics=computers,definitions,men-women,people,politics,science,songs-poems,work
texts=$(for topic in ${topics//,/ }; do printf '%s/%s,' "$fortunes" "$topic"; done)

case $form in
  short)
    small=(--width 32 --learning-rate 0.004)
    learn copy_128 "${small[@]}" --length 128 --steps 2000 --report 200 \
      --systems "$copies,strided:16,fixed:16:4"
    learn copy_128_more "${small[@]}" --length 128 --steps 2000 --report 200 \
      --systems fmm:1:20,fmm:3:30,local:30
    learn copy_128_long "${small[@]}" --length 128 --steps 6000 --report 300 --systems "$copies"
    learn copy_256 "${small[@]}" --length 256 --batch 8 --steps 2000 --report 200 \
      --systems "$copies,strided:16,fixed:16:4"
    learn copy_512 "${small[@]}" --length 512 --batch 8 --steps 1000 --report 100 \
      --systems "$copies,strided:32,fixed:32:8"
    expressions=(--task list_ops --length 200 --shortest 100 --width 32 --learning-rate 0.003
      --held-out 512)
    learn list_ops_200 "${expressions[@]}" --steps 1000 --report 250 --systems "$list_systems"
    learn list_ops_2000 --task list_ops --length 2000 --shortest 500 --width 32 --batch 8 \
      --learning-rate 0.003 --held-out 512 --steps 300 --report 100 --systems "$list_systems"
    learn list_ops_parts "${expressions[@]}" --steps 1000 --report 250 \
      --systems "$ablations"
    ;;
  long)
    # As Katharopoulos et al. (2020) and the Long Range Arena have them, but for the width of ListOps.
    for length in 128 256 512; do
      learn copy_$length --length $length --width 64 --layers 4 --heads 8 --batch 64 --steps 10000 \
        --learning-rate 0.001 --systems "$copies,strided:16,fixed:16:4,fmm:1:20,fmm:3:30,local:30"
    done
    learn list_ops_2000 --task list_ops --length 2000 --shortest 500 --width 64 --layers 4 --heads 8 \
      --batch 32 --steps 5000 --held-out 2000 --learning-rate 0.001 \
      --systems "$list_systems,$policies,$ablations"
    ;;
esac
if [ "$form" != figures ]; then
  if [ -d "$fortunes" ]; then
    topical=(--task texts --texts "${texts%,}" --length 128 --width 32 --learning-rate 0.003
      --steps 1000 --report 250 --held-out 675)
    learn texts "${topical[@]}" --systems "$list_systems"
    learn texts_policies "${topical[@]}" --systems "$policies"
  else
    echo "== texts: skipped, $fortunes not found (Debian: fortunes)"
  fi
fi

if [ "$form" = short ] && wanted layers_short; then
  echo "== layers_short"
  build/compare/bench/fovea_layers --lengths 128,256,512,1024 --repeat 9 --plots build/learning/layers
  cp build/learning/layers/layers.json "$results/layers_short.json"
fi

bash bench/pictures.sh build/compare/bench "$results"
if [ "$form" != long ]; then
  cmake -S . -B build/documents -DCMAKE_BUILD_TYPE=Release "-DFOVEA_TESTS=^structure/documents$" \
    -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_EXAMPLES=OFF -DFOVEA_TEST_PACKAGE=OFF > /dev/null
  cmake --build build/documents --target documents
fi
