// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The graph of FSAT against one of sets and maps, by bits of its keys and slots; its random edges:
/// uniform, and others for another seed, sequence, head, key and slot.
#include "fovea/attention/fsat/graph.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "attention/fsat_problem.hpp"
#include "support/levels.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_fsat_graph {

using fovea::Confidence;
using fovea::FsatGraph;
using fovea::Sequence;
using fovea::Sequences;

/// One edge: how far the query is from the dominant index, whether it is random, and the slot.
/// Of two the lesser stays.
struct Edge {
  long double distance;
  bool is_random;
  Index slot;

  bool operator<(const Edge& other) const {
    return std::tuple(distance, is_random, slot) <
           std::tuple(other.distance, other.is_random, other.slot);
  }
};

/// [query][key]
using NaiveGraph = std::map<Index, std::map<Index, std::set<Edge>>>;

template <class T>
NaiveGraph naive_graph(const View<const T>& dominant, const FsatOptions& options, const Sequence& s,
                       Index h) {
  NaiveGraph made;
  for (Index j = 0; j < s.key_end; ++j) {
    for (Index m = 0; m < dominant.width(); ++m) {
      const long double ibar = dominant(s.batch, h, s.first_key + j, m);
      const auto add = [&](Index i, bool is_random) {
        const long double distance = std::abs(static_cast<long double>(i) - ibar);
        if (i < s.key_end) made[i][j].insert({distance, is_random, m});
      };
      const auto last = static_cast<long double>(options.max_length - 1);
      if (options.edges != EdgeSource::random) {
        add(static_cast<Index>(std::min(std::floor(ibar), last)), false);
      }
      if (options.edges == EdgeSource::predicted) continue;
      const double u = fovea::uniform_draw<double>(options.seed, s.index, h, j, m);
      add(static_cast<Index>(std::floor(u * static_cast<double>(s.key_end))), true);
    }
  }
  return made;
}

template <class T>
void expect_same_graph(FsatGraph<T>& graph, const View<const T>& dominant,
                       const FsatOptions& options, const Sequence& s, Index h, Index place) {
  graph.build(s, h, place, 0);
  const NaiveGraph expected = naive_graph(dominant, options, s, h);
  const fovea::KeyLists rows = graph.rows(s, place);
  const T* const confidences = graph.confidences(s, place);
  const Index* const edge_slots = graph.edge_slots(s, place);
  ASSERT_EQ(rows.begin[0], 0);
  for (Index i = 0; i < s.queries; ++i) {
    const auto row = expected.find(i);
    const std::size_t count = row == expected.end() ? 0 : row->second.size();
    ASSERT_EQ(rows.begin[i + 1] - rows.begin[i], static_cast<Index>(count)) << "row " << i;
    if (count == 0) continue;
    Index e = rows.begin[i];
    for (const auto& [key, edges] : row->second) {
      const Edge& kept = *edges.begin();
      ASSERT_EQ(rows.data[e], key) << "row " << i;
      ASSERT_EQ(edge_slots[e], key * dominant.width() + kept.slot)
          << "row " << i << ", key " << key;
      const double variance = options.variance_or_default();
      const long double power = kept.distance * kept.distance / (2 * variance);
      const long double peak = options.confidence == Confidence::relative
                                   ? 1
                                   : 1 / std::sqrt(6.283185307179586477L * variance);
      const long double confidence = peak * std::exp(-power);
      const long double room = 4 * std::numeric_limits<T>::epsilon() * (1 + power) * confidence +
                               std::numeric_limits<T>::min();
      ASSERT_TRUE(std::abs(confidences[e] - confidence) <= room)
          << "row " << i << ", key " << key << ": " << confidences[e] << ", " << confidence;
      ++e;
    }
  }
}

template <class T>
class FsatGraphs : public testing::Test {};
TYPED_TEST_SUITE(FsatGraphs, Scalars);

TYPED_TEST(FsatGraphs, MatchSets) {
  using T = TypeParam;
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::random, EdgeSource::both}) {
    for (const Index tokens : {1, 2, 5, 64, 311}) {
      for (const Index slots_per_key : {1, 3, 4, 9}) {
        FsatOptions options{.max_length = tokens + tokens / 3, .seed = 9};
        options.edges = edges;
        if (slots_per_key == 3) options.confidence = Confidence::relative;
        FsatProblem<T> p({.batch = 2,
                          .heads = 3,
                          .key_heads = 3,
                          .tokens = tokens,
                          .slots_per_key = slots_per_key},
                         static_cast<std::uint64_t>(tokens + slots_per_key));
        p.key_lengths = {tokens, tokens / 2};
        const fovea::FsatInputs<T> in = p.inputs();
        at_each_level([&] {
          FsatGraph<T> graph(in.dominant, options, 1, true);
          graph.take_memory(6, 6, 1, fovea::SystemMemory{});
          const Sequences<T> sequences(in);
          for (Index place = 0; place < 6; ++place) {
            expect_same_graph<T>(graph, in.dominant, options, sequences[place / 3], place % 3,
                                 place);
          }
        });
      }
    }
  }
}

/// All numbers of the graphs of some heads.
template <class T>
struct GraphNumbers {
  std::vector<Index> begins, keys, edge_slots;
  std::vector<T> confidences;

  bool operator==(const GraphNumbers&) const = default;
};

/// The graphs of all heads of all sequences, built on this executor.
template <class T, class E>
GraphNumbers<T> built_on(E&& executor, const fovea::FsatInputs<T>& in, const FsatOptions& options) {
  const Sequences<T> sequences(in);
  const Index heads = in.q.heads();
  const Index graphs = sequences.count() * heads;
  FsatGraph<T> graph(in.dominant, options, sequences.packed() ? sequences.count() : 1, true);
  graph.take_memory(in.q.batch() * heads, graphs, executor.concurrency(), fovea::SystemMemory{});
  const auto head_of = [&](Index n) {
    const Sequence s = sequences[n / heads];
    return fovea::GraphHead{s, n % heads, s.batch * heads + n % heads};
  };
  graph.build(graphs, head_of, executor);
  GraphNumbers<T> all;
  for (Index n = 0; n < graphs; ++n) {
    const auto [s, head, place] = head_of(n);
    const fovea::KeyLists rows = graph.rows(s, place);
    const Index count = rows.begin[s.keys];
    all.begins.insert(all.begins.end(), rows.begin, rows.begin + s.keys + 1);
    all.keys.insert(all.keys.end(), rows.data, rows.data + count);
    all.edge_slots.insert(all.edge_slots.end(), graph.edge_slots(s, place),
                          graph.edge_slots(s, place) + count);
    const T* const confidences = graph.confidences(s, place);
    all.confidences.insert(all.confidences.end(), confidences, confidences + count);
  }
  return all;
}

/// Fewer heads than threads: threads share each of them. There are many slots, so that few tokens
/// have enough edges, many of them twice; 1500 tokens are three parts, in which lengths and packed
/// sequences end anywhere.
TYPED_TEST(FsatGraphs, DoNotDependOnThreads) {
  using T = TypeParam;
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::random, EdgeSource::both}) {
    FsatOptions options{.max_length = 1500, .seed = 5};
    options.edges = edges;
    FsatProblem<T> p({.batch = 2, .heads = 2, .key_heads = 1, .tokens = 1500, .slots_per_key = 50});
    for (const std::vector<Index>& lengths :
         {std::vector<Index>{}, {1500, 0}, {513, 512}, {1, 1025}}) {
      p.key_lengths = lengths;
      const GraphNumbers<T> alone = built_on<T>(fovea::Serial{}, p.inputs(), options);
      EXPECT_TRUE(alone == built_on<T>(Backwards{}, p.inputs(), options));
      EXPECT_TRUE(alone == built_on<T>(Shuffled{}, p.inputs(), options));
    }
    FsatProblem<T> packed(
        {.batch = 1, .heads = 1, .key_heads = 1, .tokens = 1500, .slots_per_key = 50});
    packed.cu_seqlens = {0, 0, 700, 701, 1500};
    const GraphNumbers<T> alone = built_on<T>(fovea::Serial{}, packed.inputs(), options);
    EXPECT_TRUE(alone == built_on<T>(Backwards{}, packed.inputs(), options));
    EXPECT_TRUE(alone == built_on<T>(Shuffled{}, packed.inputs(), options));
  }
}

/// More tokens than parts are at their shortest.
TYPED_TEST(FsatGraphs, DoNotDependOnTheLengthOfParts) {
  using T = TypeParam;
  constexpr Index tokens = 40'000;
  FsatOptions options{.max_length = tokens};
  options.edges = EdgeSource::both;
  const FsatProblem<T> p({.heads = 1,
                          .key_heads = 1,
                          .tokens = tokens,
                          .slots_per_key = 2,
                          .width = 0,
                          .value_width = 0});
  EXPECT_TRUE(built_on<T>(fovea::Serial{}, p.inputs(), options) ==
              built_on<T>(Shuffled{}, p.inputs(), options));
}

/// At large positions, float still distinguishes the distances of neighbours.
TYPED_TEST(FsatGraphs, AreAccurateInLongSequences) {
  using T = TypeParam;
  constexpr Index tokens = 65'536;
  const auto near_field = [](Index, Index, Index j, Index m) {
    return static_cast<double>(static_cast<float>(static_cast<double>((j * 7919 + m) % tokens) +
                                                  0.99 * uniform(hash(3, j, m, 0, 0))));
  };
  for (const double variance : {0.01, 65536.0}) {
    const FsatOptions options{.max_length = tokens, .variance = variance};
    const FsatProblem<T> p({.heads = 1,
                            .key_heads = 1,
                            .tokens = tokens,
                            .slots_per_key = 2,
                            .width = 0,
                            .value_width = 0},
                           Fill(near_field));
    const fovea::FsatInputs<T> in = p.inputs();
    FsatGraph<T> graph(in.dominant, options, 1, true);
    graph.take_memory(1, 1, 1, fovea::SystemMemory{});
    expect_same_graph<T>(graph, in.dominant, options, Sequences<T>(in)[0], 0, 0);
  }
}

/// The random queries of every slot, as the only edges of a graph.
std::vector<Index> random_queries(std::uint64_t seed, Index heads, Index tokens,
                                  Index slots_per_key) {
  FsatOptions options{.max_length = tokens, .seed = seed};
  options.edges = EdgeSource::random;
  // Each slot's own dominant index keeps edges of one query and key apart only if it has one slot.
  const FsatProblem<double> p({.heads = heads,
                               .key_heads = heads,
                               .tokens = tokens,
                               .slots_per_key = slots_per_key,
                               .width = 0,
                               .value_width = 0});
  const fovea::FsatInputs<double> in = p.inputs();
  FsatGraph<double> graph(in.dominant, options, 1, true);
  graph.take_memory(1, 1, 1, fovea::SystemMemory{});
  std::vector<Index> made(as_size(heads * tokens * slots_per_key), -1);
  const Sequence s = Sequences<double>(in)[0];
  for (Index h = 0; h < heads; ++h) {
    graph.build(s, h, 0, 0);
    const fovea::KeyLists rows = graph.rows(s, 0);
    for (Index i = 0; i < tokens; ++i) {
      for (Index e = rows.begin[i]; e < rows.begin[i + 1]; ++e) {
        made[as_size(h * tokens * slots_per_key + graph.edge_slots(s, 0)[e])] = i;
      }
    }
  }
  return made;
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

}  // namespace fovea_test::attention_fsat_graph
