// SPDX-License-Identifier: MIT
/// \file
/// Entries of FSAT attention: the core, graph and attention, without the cross before it. The
/// dominant indices are random, uniform over the sequence: honest for the time, since each key has
/// M edges wherever they lead, and meaningless for anything else.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/fsat/graph.hpp"
#include "tests/support/oracle/fsat.hpp"

namespace bench {

using fovea::FsatAttention;

/// M of what is measured, as in the paper.
inline constexpr Index kDominantIndices = 4;

inline fovea::FsatShape fsat_shape(const AttentionShape& shape) {
  return shape_for<FsatAttention>(shape, kDominantIndices);
}

using fovea::EdgeSource;

/// The operator for sequences of that many tokens.
inline FsatAttention fsat_of(Index tokens, EdgeSource edges = EdgeSource::predicted) {
  return FsatAttention({.max_length = tokens, .edges = edges});
}

/// Inputs with dominant indices.
template <class T>
struct FsatData : PlainData<T> {
  FsatData(const AllInputs<T>& in, const FsatAttention& op) : PlainData<T>(in, op) {
    const Shape shape = {1, in.q.heads(), in.k.rows(), kDominantIndices};
    const Index count = shape[1] * shape[2] * shape[3];
    std::vector<T> dominant;
    dominant.reserve(static_cast<std::size_t>(count));
    for (Index n = 0; n < count; ++n) {
      const double u = fovea::uniform_draw<double>(6, 0, 0, n / (1 << 20), n % (1 << 20));
      dominant.push_back(static_cast<T>(u * static_cast<double>(in.k.rows())));
    }
    this->inputs.dominant = this->keep(shape, std::move(dominant));
  }
};

/// The core, in float.
struct FsatSubject : Subject<FsatAttention> {
  template <class T, class S>
  using Data = FsatData<T>;

  static constexpr bool kInDouble = false;

  FsatAttention op_for(Index tokens) const { return fsat_of(tokens, op.options.edges); }
  fovea::FsatShape shape(const AttentionShape& s) const { return fsat_shape(s); }
  Error error(const FsatData<float>& data, const View<const float>& out, Index samples,
              const Rounding&) const {
    const FsatAttention own = op_for(data.inputs.k.rows());
    const auto sequence = fovea_test::oracle_sequences(data.inputs).front();
    std::vector<fovea_test::OracleGraph<float>> graphs;
    for (Index h = 0; h < data.inputs.q.heads(); ++h) {
      graphs.emplace_back(data.inputs, own.options, sequence, h);
    }
    return sampled_error<float>(out, samples, [&](Index head, Index row) {
      const AllInputs<float>& in = data.inputs;
      const auto edges = graphs[static_cast<std::size_t>(head)].row(row);
      return oracle_fsat_out(in, oracle_fsat_row(in, own.options, edges, sequence, head, row),
                             edges);
    });
  }
  void describe(Entry& entry) const {
    entry.attended_pairs = [](const AttentionShape& shape) {
      return shape.query_heads * FsatAttention{}.attended_pairs(fsat_shape(shape));
    };
  }
};

/// The graphs of a forward pass alone, on one thread; the output is not touched.
inline Entry fsat_graph_entry(Names names, std::vector<Family> families) {
  names.pass = Pass::graph;
  Entry entry = entry_of(std::move(names), FsatSubject{}, std::move(families));
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  const auto prepare = [](const AllInputs<float>& in, const View<float>&) {
    const FsatAttention op = fsat_of(in.k.rows());
    const auto data = std::make_shared<FsatData<float>>(in, op);
    return Prepared{
        [=](ThreadPool&) {
          fovea::FsatGraph<float> graph(data->inputs.dominant, op.options, 1, false);
          graph.take_memory(data->inputs.q.heads(), data->inputs.q.heads(), 1,
                            fovea::SystemMemory{});
          const fovea::Sequences<float> sequences{fovea::FsatInputs<float>(data->inputs)};
          for (Index h = 0; h < data->inputs.q.heads(); ++h) {
            graph.build(sequences[0], h, h, 0);
          }
        },
        {}};
  };
  entry.f32 = {
      prepare, [](const AttentionShape& shape, Index workers) {
        const Index heads = shape.query_heads;
        fovea::FsatGraph<float> graph(
            fovea::detail::only_shape<const float>({1, heads, shape.keys, kDominantIndices}), {}, 1,
            false);
        return fovea::detail::counted_bytes(workers, [&](const fovea::ExecutorRef& executor) {
          graph.take_memory(heads, heads, workers, executor.memory());
        });
      }};
  return entry;
}

}  // namespace bench
