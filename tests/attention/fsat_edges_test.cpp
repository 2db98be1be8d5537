// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The edges of FSAT as an output and, the random ones, as an input: uniform, and others for
/// another seed, head, key and slot.
#include <gtest/gtest.h>

#include "attention/fsat_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/refusal.hpp"

namespace fovea_test::attention_fsat_edges {

using fovea::EdgeSource;
using fovea::FsatInputs;

constexpr Index kTokens = 57, kSlots = 3, kHeads = 2;

FsatAttention made(EdgeSource edges) {
  FsatOptions options{.max_length = 64, .seed = 11};
  options.edges = edges;
  return FsatAttention(options);
}

template <class T>
FsatProblem<T> problem() {
  FsatProblem<T> p({}, {2, kHeads, 1, kTokens, kTokens, 5, 3}, {{'M', kSlots}});
  p.key_lengths = {kTokens, 20};
  return p;
}

Index width_of(EdgeSource edges) { return edges == EdgeSource::both ? 2 * kSlots : kSlots; }

template <class T>
Tensor<Index> edges_of(const FsatAttention& op, const FsatInputs<T>& in) {
  Tensor<Index> edges({2, kHeads, kTokens, width_of(op.options.edges)});
  op.edges(in, edges.view());
  return edges;
}

TEST(FsatEdges, MatchTheDefinition) {
  const FsatProblem<float> p = problem<float>();
  const FsatInputs<float> in = p.inputs();
  for (const EdgeSource source : {EdgeSource::predicted, EdgeSource::random, EdgeSource::both}) {
    const Tensor<Index> edges = edges_of(made(source), in);
    for_each_index(edges.shape(), [&](Index b, Index h, Index j, Index e) {
      const Index length = p.key_lengths[as_size(b)];
      const bool is_random = source == EdgeSource::random || e >= kSlots;
      const Index m = e % kSlots;
      Index expected = -1;
      if (j < length && is_random) {
        const double u = fovea::uniform_draw<double>(11, b, h, j, m);
        expected = static_cast<Index>(std::floor(u * static_cast<double>(length)));
      } else if (j < length) {
        const auto query =
            static_cast<Index>(std::min(std::floor(p["dominant"](b, h, j, m)), 63.0F));
        expected = query < length ? query : -1;
      }
      EXPECT_EQ(edges(b, h, j, e), expected) << b << ' ' << h << ' ' << j << ' ' << e;
    });
    fovea::ThreadPool pool(3);
    const Tensor<Index> again(edges.shape());
    made(source).edges(in, again.view(), pool);
    EXPECT_EQ(again.values(), edges.values());
  }
}

/// No key has more edges than slots, nor than there are queries.
TEST(FsatEdges, AreBoundedByVisiblePairs) {
  fovea::FsatShape shape;
  shape.queries = shape.keys = kTokens;
  shape.dominants = kSlots;
  EXPECT_EQ(made(EdgeSource::predicted).attended_pairs(shape), kTokens * kSlots);
  EXPECT_EQ(made(EdgeSource::both).attended_pairs(shape), kTokens * 2 * kSlots);
  shape.queries = shape.keys = 5;
  EXPECT_EQ(made(EdgeSource::predicted).attended_pairs(shape), 5 * kSlots);
  EXPECT_EQ(made(EdgeSource::both).attended_pairs(shape), 5 * 5);
}

/// The random slots of the edges, as an input of another call.
Tensor<Index> random_of(const Tensor<Index>& edges) {
  Tensor<Index> random({2, kHeads, kTokens, kSlots});
  const Index behind = edges.shape()[3] - kSlots;
  random.fill([&](Index b, Index h, Index j, Index m) {
    return static_cast<double>(edges(b, h, j, behind + m));
  });
  return random;
}

template <class T>
std::vector<T> both_passes(const FsatAttention& op, const FsatProblem<T>& p,
                           const FsatInputs<T>& in) {
  const Tensor<T> out(p.d_out.shape());
  const Tensor<T> lse({2, kHeads, kTokens, 1});
  const Tensor<T> d_q(p["q"].shape()), d_k(p["k"].shape()), d_v(p["v"].shape()),
      d_dominant(p["dominant"].shape());
  op.forward(in, out.view(), {.lse = lse.view()});
  op.backward(in, out.view(), {.lse = lse.view()}, p.d_out.view(),
              {.q = d_q.view(), .k = d_k.view(), .v = d_v.view(), .dominant = d_dominant.view()});
  std::vector<T> all = out.values();
  for (const auto* x : {&lse, &d_q, &d_k, &d_v, &d_dominant}) {
    const std::vector<T> more = x->values();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(FsatEdges, CanBePassedAsRandomIndices) {
  const FsatProblem<double> p = problem<double>();
  const FsatInputs<double> in = p.inputs();
  for (const EdgeSource source : {EdgeSource::random, EdgeSource::both}) {
    FsatAttention op = made(source);
    const std::vector<double> drawn = both_passes(op, p, in);
    const Tensor<Index> random = random_of(edges_of(op, in));
    FsatInputs<double> given = in;
    given.random = random.view();
    op.options.seed = 12;
    EXPECT_FALSE(same_bits(both_passes(op, p, in), drawn)) << "another seed draws others";
    EXPECT_TRUE(same_bits(both_passes(op, p, given), drawn));
    const Tensor<Index> edges = edges_of(op, given);
    op.options.seed = 11;
    EXPECT_EQ(edges.values(), edges_of(op, in).values());
  }
}

TEST(FsatEdges, InferenceReadsNoRandomIndices) {
  const FsatProblem<float> p = problem<float>();
  FsatInputs<float> in = p.inputs();
  const FsatAttention op = made(EdgeSource::predicted);
  const std::vector<float> expected = both_passes(op, p, in);
  Tensor<Index> random({2, kHeads, kTokens, kSlots});
  random.fill(constant(-5));
  in.random = random.view();
  EXPECT_TRUE(same_bits(both_passes(op, p, in), expected));
}

/// The random queries of every slot.
std::vector<Index> random_queries(std::uint64_t seed, Index heads, Index tokens,
                                  Index slots_per_key) {
  FsatOptions options{.max_length = tokens, .seed = seed};
  options.edges = EdgeSource::random;
  const FsatProblem<double> p(FsatAttention(options), {1, heads, heads, tokens, tokens, 0, 0},
                              {{'M', slots_per_key}});
  const Tensor<Index> edges({1, heads, tokens, slots_per_key});
  p.op.edges(p.inputs(), edges.view());
  return edges.values();
}

/// 64 cells, 131072 draws: chi-square has 63 degrees of freedom, and is beyond 125 once in 200000.
TEST(FsatRandomEdges, AreUniform) {
  constexpr Index tokens = 16'384;
  const std::vector<Index> drawn = random_queries(7, 8, tokens, 1);
  std::vector<double> cells(64);
  for (const Index i : drawn) {
    ASSERT_GE(i, 0);
    ASSERT_LT(i, tokens);
    cells[as_size(i / (tokens / 64))] += 1;
  }
  const double expected = static_cast<double>(drawn.size()) / 64;
  double chi_square = 0;
  for (const double count : cells) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 125);
  EXPECT_GT(chi_square, 20);
}

/// Two seeds, heads, neighbouring keys and slots: as often the same as chance has it.
TEST(FsatRandomEdges, AreIndependent) {
  constexpr Index tokens = 1000;
  const std::vector<Index> a = random_queries(1, 2, tokens, 2);
  const std::vector<Index> b = random_queries(2, 2, tokens, 2);
  EXPECT_EQ(a, random_queries(1, 2, tokens, 2));
  const auto same = [&](auto&& x, auto&& y) {
    int count = 0;
    for (Index n = 0; n < tokens; ++n) count += x(n) == y(n) ? 1 : 0;
    return count;
  };
  const auto at = [](const std::vector<Index>& x, Index h, Index shift, Index m) {
    return [&x, h, shift, m](Index j) {
      return x[as_size((h * tokens + (j + shift) % tokens) * 2 + m)];
    };
  };
  EXPECT_LT(same(at(a, 0, 0, 0), at(b, 0, 0, 0)), 8);
  EXPECT_LT(same(at(a, 0, 0, 0), at(a, 1, 0, 0)), 8);
  EXPECT_LT(same(at(a, 0, 0, 0), at(a, 0, 1, 0)), 8);
  EXPECT_LT(same(at(a, 0, 0, 0), at(a, 0, 0, 1)), 8);
}

TEST(FsatEdges, Refusals) {
  const FsatProblem<float> p = problem<float>();
  const FsatAttention op = made(EdgeSource::both);
  Tensor<Index> random({2, kHeads, kTokens, kSlots});
  random.fill(constant(3));
  FsatInputs<float> in = p.inputs();
  in.random = random.view();
  const Tensor<float> out({2, kHeads, kTokens, p["v"].shape()[3]});
  const auto message = [&] { return refusal([&] { op.forward(in, out.view()); }); };
  EXPECT_EQ(message(), "accepted");
  random(1, 1, 19, 2) = 20;
  EXPECT_EQ(
      message(),
      "FsatAttention: random[1, 1, 19, 2] is 20; expected 0 to 19, the queries of its sequence");
  random(1, 1, 19, 2) = -1;
  EXPECT_NE(message().find("random[1, 1, 19, 2] is -1"), std::string::npos);
  random(1, 1, 19, 2) = 0;
  random(1, 1, 20, 2) = -7;  // beyond the key length: not read
  EXPECT_EQ(message(), "accepted");
  const Tensor<Index> narrow({2, kHeads, kTokens, kSlots - 1});
  in.random = narrow.view();
  EXPECT_EQ(message(), "FsatAttention: random has width 2; expected 3, the width of dominant");
  in.random = {};
  const Tensor<Index> edges({2, kHeads, kTokens, kSlots});
  EXPECT_EQ(refusal([&] { op.edges(in, edges.view()); }),
            "FsatAttention: edges has width 3; expected 6, as in the call's edges");
  const Tensor<Index> enough({2, kHeads, kTokens, 2 * kSlots});
  Tensor<float> dominant({2, kHeads, kTokens, kSlots});
  dominant.fill(constant(0));
  dominant(1, 0, 2, 1) = -1;
  in.dominant = dominant.view();
  EXPECT_NE(refusal([&] { op.edges(in, enough.view()); }).find("dominant[1, 0, 2, 1] is -1"),
            std::string::npos);
}

}  // namespace fovea_test::attention_fsat_edges
