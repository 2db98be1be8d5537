#!/usr/bin/env bash
# What it costs to compile fovea: seconds, memory and code size of small programs, and of a program
# of Eigen's alone (a product and a Jacobi SVD), compiled in turns with them. Prints a table, and
# writes JSON to the file that is named last.
# usage: run.sh COMPILER INCLUDE_DIRECTORY EIGEN_DIRECTORY ROUNDS [FILE.json]
set -euo pipefail
compiler=$1 include=$2 eigen=$3 rounds=$4 json=${5:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags='-std=c++20 -O2'

# program NAME FORM: its source comes from stdin. FORM: header-only, compiled, both (two programs, one
# of them NAME_compiled), or none, which is not fovea.
names=()
declare -A forms
program() {
  names+=("$1")
  forms[$1]=${2/both/header-only}
  cat > "$folder/$1.cpp"
  if [ "$2" = both ]; then program "$1_compiled" compiled < "$folder/$1.cpp"; fi
}

program eigen none << 'END'
#include <Eigen/Dense>
Eigen::VectorXf singular_values(const Eigen::MatrixXf& a, const Eigen::MatrixXf& b) {
  const Eigen::MatrixXf c = a * b;
  return Eigen::JacobiSVD<Eigen::MatrixXf>(c, Eigen::ComputeThinU | Eigen::ComputeThinV)
      .singularValues();
}
END

# one_forward NAME HEADER OPERATOR OPTIONS [INPUT:TYPE ...]: one call, whose further inputs are views.
one_forward() {
  local name=$1 header=$2 operator=$3 options=$4 declarations= members=
  shift 4
  for input in "$@"; do
    declarations+=", const fovea::View<const ${input#*:}>& ${input%%:*}"
    members+=", .${input%%:*} = ${input%%:*}"
  done
  program "$name" "${form:-header-only}" << END
#include <fovea/attention/$header.hpp>
#include <fovea/core/eigen.hpp>
using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;
void forward(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out$declarations) {
  const $operator op$options;
  op.forward({.q = q, .k = k, .v = v$members}, out);
}
END
}

form=both one_forward forward full fovea::FullAttention ''
program forward_backward_decoder both << 'END'
#include <fovea/attention/full.hpp>
#include <fovea/core/eigen.hpp>
using Tensor = Eigen::Tensor<float, 4, Eigen::RowMajor>;
void forward(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& lse, Tensor& out) {
  fovea::FullAttention{}.forward({.q = q, .k = k, .v = v}, out, {.lse = lse});
}
void backward(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& lse, const Tensor& out,
              const Tensor& d_out, Tensor& d_q, Tensor& d_k, Tensor& d_v) {
  fovea::FullAttention{}.backward({.q = q, .k = k, .v = v}, out, {.lse = lse}, d_out,
                                  {.q = d_q, .k = d_k, .v = d_v});
}
void decode(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& out) {
  auto decoder = fovea::FullAttention{}.decoder<float>(
      {.batch = 1, .query_heads = 8, .key_heads = 8, .width = 64, .value_width = 64});
  decoder.step({.q = q, .k = k, .v = v}, out);
}
END
one_forward local local fovea::LocalAttention ''
one_forward strided strided fovea::StridedAttention ''
one_forward fixed fixed fovea::FixedAttention ''
one_forward longformer longformer fovea::LongformerAttention ''
one_forward big_bird big_bird fovea::BigBirdAttention ''
one_forward block_sparse block_sparse fovea::BlockSparseAttention '{{.layouts = {{}}}}'
one_forward linear linear 'fovea::LinearAttention<fovea::EluPlusOne>' ''
one_forward delta_rule delta_rule 'fovea::DeltaRuleAttention<fovea::EluPlusOne>' '' beta:float
one_forward fmm fmm fovea::FmmOneKernel ''
one_forward indexed indexed fovea::IndexedAttention '' indices:fovea::Index
one_forward smart_bird smart_bird fovea::SmartBirdAttention '' sketch_q:float sketch_k:float
one_forward fsat fsat fovea::FsatAttention '' dominant:float
program quickstart both < "$(dirname "$0")/../../examples/quickstart.cpp"
program everything both < "$(dirname "$0")/../../tests/consumer/flags/every_operator.cpp"

# measure NAME: "seconds MB" of one compilation, in user time of the compiler.
measure() {
  local options=()
  if [ "${forms[$1]}" = compiled ]; then options=(-DFOVEA_COMPILED -DFOVEA_COMPILED_FFTW); fi
  /usr/bin/time -f '%U %M' -o "$folder/time" "$compiler" $flags "${options[@]}" -I "$include" \
    -isystem "$eigen" -c "$folder/$1.cpp" -o "$folder/$1.o"
  awk '{ printf "%s %d\n", $1, $2 / 1024 }' "$folder/time"
}

# Each round compiles all programs, with the yardstick between them: a busy minute is everybody's.
for ((round = 1; round <= rounds; ++round)); do
  for name in "${names[@]}"; do
    [ "$name" = eigen ] && continue
    # They take minutes, and one figure is enough.
    [[ "$name" = everything* ]] && ((round > 1)) && continue
    measure eigen >> "$folder/$name.yardstick"
    measure "$name" >> "$folder/$name.times"
  done
done

# median FILE COLUMN
median() { sort -n -k "$2,$2" "$1" | awk -v c="$2" '{ x[NR] = $c } END { print x[int((NR + 1) / 2)] }'; }

# text_kb NAME: of the object's code, in KB of 1000 bytes.
text_kb() { size "$folder/$1.o" | awk 'NR == 2 { printf "%d", ($1 + 999) / 1000 }'; }

cpu=$(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo)
version=$("$compiler" --version | head -1)
cat "$folder"/*.yardstick > "$folder/all.yardstick"
yardstick=$(median "$folder/all.yardstick" 1)
{
  printf '{\n  "machine": "%s",\n  "date": "%s",\n  "compiler": "%s",\n  "flags": "%s",\n  "rounds": %d,\n' \
    "$cpu" "$(date +%F)" "$version" "$flags" "$rounds"
  printf '  "yardstick": {"program": "eigen", "seconds": %s, "memory_mb": %s, "text_kb": %s},\n' \
    "$yardstick" "$(median "$folder/all.yardstick" 2)" "$(text_kb eigen)"
  printf '  "programs": ['
  separator=
  for name in "${names[@]}"; do
    [ "$name" = eigen ] && continue
    seconds=$(median "$folder/$name.times" 1)
    # The ratio of each pair of neighbours, and its median.
    paste -d' ' "$folder/$name.times" "$folder/$name.yardstick" | awk '{ print $1 / $3 }' \
      > "$folder/ratios"
    printf '%s\n    {"name": "%s", "form": "%s", "seconds": %s, "ratio": %.2f, "memory_mb": %s, "text_kb": %s}' \
      "$separator" "$name" "${forms[$name]}" "$seconds" "$(median "$folder/ratios" 1)" \
      "$(median "$folder/$name.times" 2)" "$(text_kb "$name")"
    separator=,
  done
  printf '\n  ]\n}\n'
} > "$folder/result.json"

printf '%-26s %9s %10s %8s %8s\n' program seconds 'of Eigen' MB 'code KB'
printf '%-26s %9s %10s %8s %8s\n' eigen "$yardstick" 1.00 "$(median "$folder/all.yardstick" 2)" \
  "$(text_kb eigen)"
sed -nE 's/.*"name": "([^"]*)".*"seconds": ([^,]*), "ratio": ([^,]*), "memory_mb": ([^,]*), "text_kb": ([^}]*)}.*/\1 \2 \3 \4 \5/p' \
  "$folder/result.json" | while read -r name seconds ratio memory text; do
  printf '%-26s %9s %10s %8s %8s\n' "$name" "$seconds" "$ratio" "$memory" "$text"
done
if [ -n "$json" ]; then cp "$folder/result.json" "$json"; fi
