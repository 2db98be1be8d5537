// SPDX-License-Identifier: MIT
/// \file
/// Trials of Longformer attention with projections of its global rows, compiled once for all.
#include "attention/longformer_problem.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

template <class T>
void try_projections(Bytes& bytes) {
  AttentionShape shape = drawn_shape(bytes);
  const LongformerOptions options = drawn_longformer(bytes);
  shape.keys = std::max(shape.keys, least_keys(options));
  if (bytes.once_in(16)) shape.batch = 0;
  const std::vector<Index> lengths = drawn_lengths(bytes, shape.batch, shape.keys);
  // Otherwise where the rows are must be said.
  if (!lengths.empty() && options.alignment == fovea::CausalAlignment::bottom_right) {
    shape.queries = shape.keys;
  }
  std::vector<Index> cu_seqlens;
  if (shape.batch == 1 && lengths.empty() && shape.queries == shape.keys && bytes.once_in(2)) {
    cu_seqlens = {0, bytes(0, shape.keys), shape.keys};
  }
  const auto make = [&](const Layout& layout) {
    LongformerProblem<T> made(LongformerAttention(options), shape, {}, 1, layout);
    made.key_lengths = lengths;
    made.cu_seqlens = cu_seqlens;
    return made;
  };
  try_problem(bytes, make, ", " + describe(options));
}
#define FOVEA_DRAWN(T) template void try_projections<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
