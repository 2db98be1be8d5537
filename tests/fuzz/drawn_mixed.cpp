// SPDX-License-Identifier: MIT
/// \file
/// Trials of Linformer and Nystroem attention, compiled once for all.
#include "attention/mixed_problems.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

/// Runs a call of these sizes.
template <class Op, class T>
void try_sizes(Bytes& bytes, const Op& op, const AttentionShape& s, const Extents& more,
               const std::vector<Index>& lengths, std::uint64_t seed, double spread) {
  const bool saves = bytes.once_in(2);
  const auto make = [&](const Layout& layout) {
    CallProblem<Op, T> p(op, s, more, seed, layout);
    p["q"].fill(gaussian(seed, spread));
    p["k"].fill(gaussian(seed + 1, spread));
    p.key_lengths = lengths;
    return p;
  };
  try_problem(bytes, make, "", saves);
}

template <class T>
void try_linformer(Bytes& bytes) {
  const LinformerAttention op({.scale = drawn_scale(bytes)});
  AttentionShape s;
  s.queries = drawn_rows(bytes);
  s.keys = drawn_rows(bytes);
  const Index projected = bytes.once_in(3) ? bytes(1, 150) : bytes(1, 9);
  const Index pairs = (s.queries + s.keys) * projected;
  s.key_heads = drawn_few(bytes, 3, pairs);
  s.query_heads = s.key_heads * drawn_few(bytes, 2, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  const Index of_keys = bytes.once_in(2) ? 1 : s.key_heads;
  const Index of_values = bytes.once_in(2) ? 1 : s.key_heads;
  s.batch = drawn_batch(bytes, s.query_heads * pairs);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.keys);
  try_sizes<LinformerAttention, T>(
      bytes, op, s, {{'P', projected}, {'e', of_keys}, {'f', of_values}}, lengths, seed, spread);
}

template <class T>
void try_nystroem(Bytes& bytes) {
  // The oracle computes the call again for each gradient that is read, if these are few.
  const bool is_small = bytes.once_in(2);
  fovea::NystroemOptions options;
  options.landmarks = is_small ? bytes(1, 4) : bytes(1, 40);
  options.iterations = bytes(0, 7);
  if (bytes.once_in(2)) options.first_scale = fovea::NystroemScale::batch_max;
  options.scale = drawn_scale(bytes);
  AttentionShape s;
  s.key_heads = bytes(1, 2);
  s.query_heads = s.key_heads * bytes(1, 2);
  const Index most = is_small ? 4 : std::max<Index>(1, 150 / options.landmarks);
  s.queries = options.landmarks * bytes(0, most);
  s.keys = options.landmarks * bytes(0, most);
  s.width = is_small ? bytes(0, 4) : drawn_width(bytes);
  s.value_width = is_small ? bytes(0, 3) : drawn_width(bytes);
  s.batch = bytes(is_small ? 0 : 1, 2);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  std::vector<Index> lengths;
  // Lengths are of tokens, which are queries, too.
  if (s.queries == s.keys) lengths = drawn_lengths(bytes, s.batch, s.keys, options.landmarks);
  try_sizes<NystroemAttention, T>(bytes, NystroemAttention(options), s, {}, lengths, seed, spread);
}

}  // namespace

template <class T>
void try_mixed(Bytes& bytes) {
  bytes.once_in(2) ? try_linformer<T>(bytes) : try_nystroem<T>(bytes);
}
#define FOVEA_DRAWN(T) template void try_mixed<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
