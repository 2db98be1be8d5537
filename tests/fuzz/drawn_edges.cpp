// SPDX-License-Identifier: MIT
/// \file
/// Trials of attention over keys that are predicted or chosen, FSAT and Smart Bird, compiled once
/// for all.
#include <algorithm>
#include <sstream>

#include "attention/fsat_problem.hpp"
#include "attention/sketch_problem.hpp"
#include "fuzz/calls.hpp"
#include "fuzz/drawn_calls.hpp"
#include "support/scalars.hpp"

namespace fovea_test {
namespace {

/// Dominant indices anywhere, at one query, at the ends of their range, or beyond.
Fill drawn_dominants(Bytes& bytes, const FsatOptions& options, Index tokens) {
  const auto seed = static_cast<std::uint64_t>(bytes(1, 255));
  const auto length = static_cast<double>(tokens);
  switch (bytes(0, 3)) {
    case 0:
      return constant(static_cast<double>(bytes(0, std::max<Index>(0, tokens - 1))) + 0.25);
    case 1: {
      const auto most = static_cast<double>(options.max_length);
      const std::array<double, 6> ends = {0, length, most - 1, most, 1e30, length - 0.5};
      return [=](Index b, Index h, Index j, Index m) {
        return std::max(0.0, ends[hash(seed, b, h, j, m) % ends.size()]);
      };
    }
    case 2:
      return dominant_fill(seed, static_cast<double>(options.max_length));
    default:
      return dominant_fill(seed, length);
  }
}

template <class T>
void try_fsat(Bytes& bytes) {
  AttentionShape s;
  s.queries = s.keys = drawn_rows(bytes);
  const Index slots = bytes(1, 6);
  const Index pairs = s.keys * s.keys;
  s.key_heads = drawn_few(bytes, 2, pairs);
  s.query_heads = s.key_heads * drawn_few(bytes, 2, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  s.batch = drawn_batch(bytes, s.query_heads * pairs);
  const FsatOptions options = drawn_fsat(bytes, s.keys);
  const Fill dominants = drawn_dominants(bytes, options, s.keys);
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  const std::vector<Index> lengths = drawn_lengths(bytes, s.batch, s.keys);
  std::vector<Index> cu_seqlens;
  if (s.batch == 1 && lengths.empty() && bytes.once_in(2)) {
    cu_seqlens = {0, bytes(0, s.keys), s.keys};
  }
  const FsatAttention op(options);
  const auto make = [&](const Layout& layout) {
    FsatProblem<T> p(op, s, {{'M', slots}}, seed, layout);
    p["dominant"].fill(dominants);
    p["q"].fill(gaussian(seed, spread));
    p.key_lengths = lengths;
    p.cu_seqlens = cu_seqlens;
    return p;
  };
  try_problem(bytes, make,
              ", Lmax " + std::to_string(options.max_length) + ", edges " +
                  std::to_string(static_cast<int>(options.edges)));
}

BirdSizes drawn_bird_sizes(Bytes& bytes) {
  BirdSizes s{.queries = drawn_rows(bytes), .keys = drawn_rows(bytes)};
  if (bytes.once_in(12)) {  // enough for blocks of keys to be searched
    s.queries = bytes(1, 8);
    s.keys = 1024 + bytes(0, 200);
  }
  const Index pairs = s.queries * s.keys;
  s.key_heads = drawn_few(bytes, 2, pairs);
  s.heads = s.key_heads * drawn_few(bytes, 2, s.key_heads * pairs);
  s.width = drawn_width(bytes);
  s.value_width = bytes.once_in(3) ? s.width : drawn_width(bytes);
  s.sketch_width = bytes.once_in(6) ? bytes(9, 20) : bytes(0, 8);
  s.batch = drawn_batch(bytes, s.heads * pairs);
  return s;
}

template <class T>
void judge_bird(const SmartBirdAttention& op, const BirdProblem<T>& p, const CallResult<T>& got) {
  const AllInputs<T> in = p.inputs();
  const IndexTensor chosen = op.select(in.sketch(), in.q.heads());
  expect_choice(op.options, chosen.view(), in);
  const WrittenTensors<SmartBirdAttention, BirdProblem<T>> to(op, p);
  op.forward(in, to.out().view(), to.saved());
  EXPECT_EQ(to.chosen("indices").values(), values_of(chosen.view()));
  const std::vector<OracleSequence> sequences = oracle_sequences(in);
  const ReferenceMask reference_mask = [&](const Pair& pair) {
    const OracleSequence& s = sequences[as_size(pair.b)];
    for (Index n = 0; n < op.options.keys_per_row; ++n) {
      const Index key = chosen.view()(s.batch, pair.h, s.first_query + pair.row, n);
      if (key < 0 || key >= pair.j) return key == pair.j;
    }
    return false;
  };
  const fovea::SoftmaxOptions softmax{.scale = op.options.scale, .alignment = op.options.alignment};
  const auto oracle = OracleOperator<T>::of(softmax, reference_mask, p.sizes.width);
  const Expected<T> expected = softmax_oracle(in, oracle);
  const ExpectedGrads<T> grads = softmax_grad_oracle(in, oracle, View<const T>(p.d_out.view()));
  judge_of<T>({{"out", expected.out, 16},
               {"lse", expected.lse, 8},
               {"d_q", grads.q, 32},
               {"d_k", grads.k, 32},
               {"d_v", grads.v, 16}})(got, drawn_name("smart_bird"));
}

template <class T>
void try_smart_bird(Bytes& bytes) {
  const BirdSizes s = drawn_bird_sizes(bytes);
  SmartBirdOptions options = drawn_smart_bird(bytes);
  if (bytes.once_in(4)) options.alignment = fovea::CausalAlignment::top_left;
  const std::uint64_t seed = drawn_seed(bytes);
  static const std::vector<double> deviations = {1, 1, 1, 0, 1e-3, 30};
  BirdProblem<T> problem(s, drawn_of(bytes, deviations), seed);
  problem.key_lengths = drawn_lengths(bytes, s.batch, s.keys);
  if (s.batch == 1 && problem.key_lengths.empty() && bytes.once_in(2)) {
    problem.cu_q = {0, bytes(0, s.queries), s.queries};
    problem.cu_k = {0, bytes(0, s.keys), s.keys};
  }
  if (!problem.key_lengths.empty() && options.alignment == fovea::CausalAlignment::bottom_right) {
    problem.first_positions.assign(as_size(s.batch), s.keys - s.queries);
  }
  if (bytes.once_in(3)) {
    problem.draws = Tensor<T>({s.batch, s.heads, s.queries, s.keys});
    problem.draws->fill([=](Index b, Index h, Index i, Index j) {
      return 0.001 + 0.998 * uniform(hash(seed + 9, b, h, i, j));
    });
  }
  const bool saves = bytes.once_in(2);
  std::ostringstream text;
  text << "Smart Bird " << scalar_name<T>() << ": B " << s.batch << ", Hq " << s.heads << ", Hk "
       << s.key_heads << ", Nq " << s.queries << ", Nk " << s.keys << ", D " << s.width << ", Dv "
       << s.value_width << ", d " << s.sketch_width << ", K " << options.keys_per_row << ", policy "
       << static_cast<int>(options.policy) << ", search " << static_cast<int>(options.search)
       << (options.causal ? ", causal" : "");
  SCOPED_TRACE(text.str());
  const SmartBirdAttention op(options);
  try_here_and_elsewhere(
      bytes, [&](const Layout& layout) { return problem.in(layout); },
      [&](const BirdProblem<T>& p, AnyExecutor* executor, const Layout& layout) {
        return run_call(op, p, executor, layout, saves);
      },
      [&](const BirdProblem<T>& p, const CallResult<T>& got) { judge_bird(op, p, got); },
      [&](const BirdProblem<T>& p) {
        poison_rows<T>(bytes, p.key_lengths, {&p.k, &p.v, &p.sketch_k});
      });
}

}  // namespace

template <class T>
void try_edges(Bytes& bytes) {
  bytes.once_in(2) ? try_fsat<T>(bytes) : try_smart_bird<T>(bytes);
}
#define FOVEA_DRAWN(T) template void try_edges<T>(Bytes&);
FOVEA_TEST_SCALARS(FOVEA_DRAWN)
#undef FOVEA_DRAWN

}  // namespace fovea_test
