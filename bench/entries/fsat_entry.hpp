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

#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/fsat/graph.hpp"

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
struct FsatData {
  explicit FsatData(const AllInputs<T>& in, EdgeSource edges = EdgeSource::predicted)
      : inputs(in), op(fsat_of(in.k.rows(), edges)) {
    const Index count = in.q.heads() * in.k.rows() * kDominantIndices;
    dominant.reserve(static_cast<std::size_t>(count));
    for (Index n = 0; n < count; ++n) {
      const double u = fovea::uniform_draw<double>(6, 0, 0, n / (1 << 20), n % (1 << 20));
      dominant.push_back(static_cast<T>(u * static_cast<double>(in.k.rows())));
    }
    inputs.dominant =
        View<const T>(dominant.data(), {1, in.q.heads(), in.k.rows(), kDominantIndices});
  }
  FsatData(const FsatData&) = delete;
  FsatData& operator=(const FsatData&) = delete;

  std::vector<T> dominant;
  AllInputs<T> inputs;
  FsatAttention op;
};

/// The distance of a row from the nearest dominant index of key j whose slot has an edge to it;
/// negative if there is none.
template <class T>
Wide<T> fsat_distance(const FsatAttention& op, const AllInputs<T>& in, Index head, Index row,
                      Index j) {
  Wide<T> least = -1;
  const auto look_at = [&](Index index, Wide<T> ibar) {
    const Wide<T> distance = std::abs(static_cast<Wide<T>>(index) - ibar);
    if (index == row && !(least >= 0 && least <= distance)) least = distance;
  };
  for (Index m = 0; m < in.dominant.width(); ++m) {
    const Wide<T> ibar = in.dominant(0, head, j, m);
    look_at(std::min(static_cast<Index>(std::floor(ibar)), in.k.rows() - 1), ibar);
    if (op.options.edges != EdgeSource::both) continue;
    const double u = fovea::uniform_draw<double>(op.options.seed, 0, head, j, m);
    look_at(static_cast<Index>(std::floor(u * static_cast<double>(in.k.rows()))), ibar);
  }
  return least;
}

/// The truth for one row: softmax over its keys, each value times its confidence.
template <class T>
RowReference<T> fsat_row(const FsatAttention& op, const AllInputs<T>& in, Index head, Index row) {
  using W = Wide<T>;
  const auto visible = [&](Index j) { return fsat_distance(op, in, head, row, j) >= 0; };
  std::vector<T> one_hot(static_cast<std::size_t>(in.k.rows()));
  RowReference<T> truth{std::vector<W>(static_cast<std::size_t>(in.v.width()), 0),
                        std::vector<W>(static_cast<std::size_t>(in.v.width()), 0)};
  const W variance = static_cast<W>(in.k.rows());
  for (Index j = 0; j < in.k.rows(); ++j) {
    if (!visible(j)) continue;
    // The weight of key j is what a value of 1 there, and 0 elsewhere, makes.
    AllInputs<T> weight = in;
    one_hot[static_cast<std::size_t>(j)] = 1;
    weight.v = View<const T>(one_hot.data(), {1, in.k.heads(), in.k.rows(), 1}, {0, 0, 1, 0});
    const RowReference<T> p = softmax_row(weight, head, row, visible);
    one_hot[static_cast<std::size_t>(j)] = 0;
    const W distance = fsat_distance(op, in, head, row, j);
    const W exponent = distance * distance / (2 * variance);
    const W confidence =
        std::exp(-exponent) / std::sqrt(2 * static_cast<W>(3.141592653589793238462643L) * variance);
    for (std::size_t c = 0; c < truth.out.size(); ++c) {
      const W value = in.v(0, head / (in.q.heads() / in.k.heads()), j, static_cast<Index>(c));
      truth.out[c] += p.out[0] * confidence * value;
      truth.unit[c] += p.unit[0] * (confidence + kFaintWeight<T>)*(1 + exponent) * std::abs(value);
    }
  }
  return truth;
}

namespace detail {

/// An entry in float without its runner.
inline Entry fsat_entry(Names names, std::vector<Family> families) {
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.attended_pairs = [](const AttentionShape& shape) {
    return shape.query_heads * FsatAttention{}.attended_pairs(fsat_shape(shape));
  };
  return entry;
}

inline Error fsat_error(const FsatData<float>& data, const View<const float>& out, Index samples) {
  return sampled_error<float>(data.inputs, out, samples,
                              [&](const AllInputs<float>& in, Index head, Index row) {
                                return fsat_row(data.op, in, head, row);
                              });
}

}  // namespace detail

/// Forward passes.
inline Entry fsat_forward_entry(Names names, std::vector<Family> families) {
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  entry.f32 = {[](const AllInputs<float>& in, const View<float>& out) {
                 const auto data = std::make_shared<FsatData<float>>(in);
                 return Prepared{
                     [=](ThreadPool& pool) { data->op.forward(data->inputs, out, pool); },
                     [=](Index samples) { return detail::fsat_error(*data, out, samples); }};
               },
               [](const AttentionShape& shape, Index workers) {
                 return fsat_of(shape.keys).workspace_bytes<float>(fsat_shape(shape), workers);
               }};
  return entry;
}

/// Backward passes with the gradient of the dominant indices; what is checked is the output.
inline Entry fsat_backward_entry(Names names, std::vector<Family> families) {
  names.pass = Pass::backward;
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  const auto prepare = [](const AllInputs<float>& in, const View<float>& out) {
    const auto data = std::make_shared<FsatData<float>>(in);
    const auto work = std::make_shared<Training<float>>(in, out);
    const auto d_dominant = std::make_shared<std::vector<float>>(data->dominant.size());
    work->grads.dominant = View<float>(d_dominant->data(), data->inputs.dominant.shape());
    data->op.forward(data->inputs, out, work->saved);
    return Prepared{[=](ThreadPool& pool) {
                      static_cast<void>(d_dominant);
                      data->op.backward(data->inputs, out, work->saved, work->d_out, work->grads,
                                        pool);
                    },
                    [=](Index samples) { return detail::fsat_error(*data, out, samples); }};
  };
  entry.f32 = {
      prepare, [](const AttentionShape& shape, Index workers) {
        return fsat_of(shape.keys).backward_workspace_bytes<float>(fsat_shape(shape), workers);
      }};
  return entry;
}

/// The graphs of a forward pass alone, on one thread; the output is not touched.
inline Entry fsat_graph_entry(Names names, std::vector<Family> families) {
  names.pass = Pass::graph;
  Entry entry = detail::fsat_entry(std::move(names), std::move(families));
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  const auto prepare = [](const AllInputs<float>& in, const View<float>&) {
    const auto data = std::make_shared<FsatData<float>>(in);
    return Prepared{
        [=](ThreadPool&) {
          fovea::FsatGraph<float> graph(data->inputs.dominant, data->op.options, 1, false);
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
