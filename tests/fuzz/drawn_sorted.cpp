// SPDX-License-Identifier: MIT
/// \file
/// Trials of Reformer and Sinkhorn attention, compiled once for all.
#include <algorithm>
#include <array>
#include <string>

#include "attention/reformer_problem.hpp"
#include "attention/sinkhorn_problem.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

/// Rows of a block, and how many of these there are.
struct Blocks {
  Index rows;
  Index count;
};

Blocks drawn_blocks(Bytes& bytes) {
  constexpr Index most_rows = 320;
  const Index rows = bytes.once_in(3) ? bytes(1, 160) : bytes(1, 12);
  const Index most = std::max<Index>(1, most_rows / rows);
  return {rows, bytes.once_in(3) ? bytes(0, most) : bytes(0, std::min<Index>(most, 6))};
}

ReformerOptions drawn_reformer(Bytes& bytes, Index chunk) {
  ReformerOptions options{.chunk = chunk, .rounds = bytes(1, 4)};
  options.buckets = 2 * (bytes.once_in(3) ? bytes(1, 50) : bytes(1, 6));
  options.causal = bytes.once_in(2);
  using enum FirstChunk;
  options.before_first = std::array{wrap, none, previous_round}[as_size(bytes(0, 2))];
  options.across_buckets = !bytes.once_in(3);
  options.correct_duplicates = bytes.once_in(2);
  options.scale = drawn_scale(bytes);
  options.seed = drawn_seed(bytes);
  return options;
}

/// The contents of a projection: normal numbers, or numbers that produce many ties.
Fill drawn_hashes(Bytes& bytes, std::uint64_t seed) {
  switch (bytes(0, 3)) {
    case 0:
      return constant(0);
    case 1:
      return integers(seed, 1);
    default:
      return gaussian(seed);
  }
}

template <class T>
void try_reformer(Bytes& bytes) {
  const auto [chunk, chunks] = drawn_blocks(bytes);
  const ReformerOptions options = drawn_reformer(bytes, chunk);
  AttentionShape s;
  s.query_heads = s.key_heads = bytes(1, 2);
  s.queries = s.keys = chunk * chunks;
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  s.batch = drawn_batch(bytes, s.query_heads * s.queries * 2 * chunk * options.rounds);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  const bool has_integers = bytes.once_in(4);
  const bool is_given = bytes.once_in(3);
  const Fill hashes = drawn_hashes(bytes, seed + 5);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.queries);
  const bool saves = bytes.once_in(2);
  const ReformerAttention op(options);
  const auto make = [&](const Layout& layout) {
    ReformerProblem<T> p(op, s, {{'?', is_given ? 1 : 0}}, seed, layout);
    p["qk"].fill(has_integers ? integers(seed, 2) : gaussian(seed, spread));
    if (is_given) p["projection"].fill(hashes);
    p.key_lengths = lengths;
    return p;
  };
  try_problem(bytes, make, ", " + describe(options), saves, [&](const ReformerProblem<T>& p) {
    const fovea::ReformerInputs<T> in = p.inputs();
    bool is_decided = true;
    for_each_index({s.batch, s.query_heads, 1, 1}, [&](Index b, Index h, Index, Index) {
      is_decided = is_decided && OracleHashes<T>(in, options, b, h).is_decided();
    });
    ++(is_decided ? reformer_calls().judged : reformer_calls().undecided);
    return is_decided;
  });
}

template <class T>
void try_sinkhorn(Bytes& bytes) {
  const auto [block, blocks] = drawn_blocks(bytes);
  const SinkhornOptions options{
      .block = block, .iterations = bytes(0, 9), .scale = drawn_scale(bytes)};
  AttentionShape s;
  s.key_heads = bytes(1, 2);
  s.query_heads = s.key_heads * bytes(1, 3);
  s.queries = s.keys = block * blocks;
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  s.batch = drawn_batch(bytes, s.query_heads * s.queries * (2 * block + blocks));
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  const double of_sorting = drawn_sharded(bytes);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.queries, block);
  const SinkhornAttention op(options);
  const auto make = [&](const Layout& layout) {
    SortProblem<T> p(op, s, {}, seed, layout);
    p["q"].fill(gaussian(seed, spread));
    p["sorting"].fill(gaussian(seed + 3, of_sorting));
    p.key_lengths = lengths;
    return p;
  };
  try_problem(bytes, make,
              ", blocks of " + std::to_string(block) + ", n " + std::to_string(options.iterations));
}

}  // namespace

ReformerCalls& reformer_calls() {
  static ReformerCalls calls;
  return calls;
}

template <class T>
void try_sorted(Bytes& bytes) {
  bytes.once_in(2) ? try_reformer<T>(bytes) : try_sinkhorn<T>(bytes);
}
#define FOVEA_DRAWN(T) template void try_sorted<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
