// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forms of the Synthesizer over ranks, with drawn options, sizes, data and places: the bits
/// are those of one process.
#include <gtest/gtest.h>

#include "distributed/operator_calls.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

namespace fovea_test::distributed_drawn_synthesizer {

using fovea::kReductionBlock;

DenseSizes drawn_dense_sizes(Bytes& bytes, const AttentionShape& s) {
  DenseSizes sizes;
  sizes.hidden = bytes.once_in(8) ? 0 : bytes(1, 40);
  sizes.columns = s.keys + (bytes.once_in(2) ? 0 : bytes(1, 30));
  sizes.token_heads = bytes.once_in(2) ? 1 : s.query_heads;
  sizes.has_b1 = bytes.once_in(2);
  sizes.has_b2 = bytes.once_in(2);
  return sizes;
}

template <class T>
void try_any(Bytes& bytes) {
  const Index form = bytes(0, 2);
  DrawnSequence sequence(bytes, 1, form == 0 ? 1500 : 2 * fovea::kKeySegment + 200);
  if (form == 0 && sequence.shape.queries > 200) {  // whose logits are many
    sequence.shape.key_heads = 1;
    sequence.shape.query_heads = std::min<Index>(sequence.shape.query_heads, 2);
  }
  const fovea::SynthesizerOptions options{.causal = bytes.once_in(2)};
  const Index weights = bytes.once_in(2) ? 1 : sequence.shape.batch;
  const Fills fills = drawn_fills(bytes, sequence.seed);
  const Index rows = sequence.shape.queries;
  if (form == 2) {
    const DenseSizes sizes = drawn_dense_sizes(bytes, sequence.shape);
    DenseCall<T> call(sequence, fills, weights, sizes);
    // Sums over tokens are cut at chains.
    const bool sums_tokens = bytes.once_in(2);
    if (!sums_tokens) call.d_w1.role = call.d_b1.role = Role::none;
    const RowLayout layout = drawn_row_layout(bytes, rows, sums_tokens ? kReductionBlock : 1);
    try_sharded(fovea::DenseSynthesizerAttention(options),
                ", M " + std::to_string(sizes.hidden) + ", weights " + std::to_string(weights),
                call, false, layout, bytes);
    return;
  }
  const RowLayout layout = drawn_row_layout(bytes, rows);
  if (form == 1) {
    FactorisedCall<T> call(sequence, fills, weights);
    try_sharded(fovea::FactorisedSynthesizerAttention(options),
                ", weights " + std::to_string(weights), call, false, layout, bytes);
  } else {
    RandomCall<T> call(sequence, fills, weights);
    try_sharded(fovea::RandomSynthesizerAttention(options), ", weights " + std::to_string(weights),
                call, false, layout, bytes);
  }
}

TEST(DistributedDrawnSynthesizer, EqualsOneProcess) {
  each_drawn_over_ranks(80, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    with_drawn_scalar(bytes, [&]<class T>(T) { try_any<T>(bytes); });
  });
}

}  // namespace fovea_test::distributed_drawn_synthesizer
