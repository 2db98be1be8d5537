// SPDX-License-Identifier: MIT
/// \file
/// Entries of attention over sorted rows: Sinkhorn attention in blocks of 64 rows, and Reformer
/// attention in chunks of 64 with 4 rounds of 64 buckets.
#include "bench/entries/operators.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/sinkhorn.hpp"

namespace bench {

namespace {

using fovea::FullAttention;
using fovea::ReformerAttention;
using fovea::SinkhornAttention;

/// The rows of a block, and of a chunk.
constexpr Index kRows = 64;

/// The truth for one row, whose logits, keys' values and sizes of logits are given.
struct SeenKey {
  Wide<float> logit;
  Wide<float> size;
  std::vector<Wide<float>> value;
};
RowReference<float> softmax_of(const std::vector<SeenKey>& keys, std::size_t width) {
  using W = Wide<float>;
  RowReference<float> truth{std::vector<W>(width), std::vector<W>(width)};
  W most = -std::numeric_limits<W>::infinity();
  W size = 0;
  for (const SeenKey& key : keys) {
    most = std::max(most, key.logit);
    size = std::max(size, key.size);
  }
  W sum = 0;
  for (const SeenKey& key : keys) sum += std::exp(key.logit - most);
  for (const SeenKey& key : keys) {
    const W p = std::exp(key.logit - most) / sum;
    for (std::size_t c = 0; c < width; ++c) {
      truth.out[c] += p * key.value[c];
      truth.unit[c] += p * std::abs(key.value[c]) * (1 + size);
    }
  }
  return truth;
}

/// Inputs and outputs of Sinkhorn attention besides q, k, v and out.
struct SinkhornData {
  SinkhornData(const AllInputs<float>& in, const View<float>& to) : work(in, to), out(to) {
    const Index blocks = in.k.rows() / kRows;
    const Shape shape = {1, in.k.heads(), blocks, blocks};
    sorting = gaussians<float>(7, 0, in.k.heads() * blocks * blocks);
    d_sorting.resize(sorting.size());
    inputs = {in.q, in.k, in.v, {}, View<const float>(sorting.data(), shape)};
    grads = {work.grads.q, work.grads.k, work.grads.v, View<float>(d_sorting.data(), shape)};
  }
  SinkhornData(const SinkhornData&) = delete;
  SinkhornData& operator=(const SinkhornData&) = delete;

  void forward(ThreadPool& pool) const { op.forward(inputs, out, {work.saved.lse}, pool); }
  void backward(ThreadPool& pool) const {
    op.backward(inputs, out, {work.saved.lse}, work.d_out, grads, pool);
  }

  Training<float> work;
  View<float> out;
  std::vector<float> sorting, d_sorting;
  SinkhornAttention op{{.block = kRows}};
  fovea::SinkhornInputs<float> inputs;
  fovea::SinkhornGrads<float> grads;
};

/// The weights of one head by plain loops.
std::vector<double> sorting_weights(const SinkhornData& data, Index head) {
  const Index n = data.inputs.sorting.rows();
  std::vector<double> x;
  for (Index u = 0; u < n; ++u) {
    for (Index w = 0; w < n; ++w) x.push_back(std::exp(double{data.inputs.sorting(0, head, u, w)}));
  }
  for (Index step = 0; step < 2 * data.op.options.iterations; ++step) {
    const auto at = [&](Index a, Index b) -> double& {
      return x[static_cast<std::size_t>(step % 2 == 0 ? a * n + b : b * n + a)];
    };
    for (Index a = 0; a < n; ++a) {
      double sum = 0;
      for (Index b = 0; b < n; ++b) sum += at(a, b);
      for (Index b = 0; b < n; ++b) at(a, b) /= sum;
    }
  }
  return x;
}

RowReference<float> sinkhorn_row(const SinkhornData& data, const std::vector<double>& weights,
                                 Index head, Index row) {
  const auto& in = data.inputs;
  const Index key_head = head / (in.q.heads() / in.k.heads());
  const Index n = in.sorting.rows();
  const Index block = row / kRows;
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.width()));
  std::vector<SeenKey> keys;
  for (Index t = 0; t < 2 * kRows; ++t) {
    const auto element = [&](const View<const float>& x, Index c) {
      if (t >= kRows) return double{x(0, key_head, block * kRows + t - kRows, c)};
      double sum = 0;
      for (Index w = 0; w < n; ++w) {
        sum += weights[static_cast<std::size_t>(block * n + w)] *
               double{x(0, key_head, w * kRows + t, c)};
      }
      return sum;
    };
    SeenKey key{0, 0, {}};
    for (Index c = 0; c < in.q.width(); ++c) {
      const double term = scale * double{in.q(0, head, row, c)} * element(in.k, c);
      key.logit += term;
      key.size += std::abs(term);
    }
    for (Index c = 0; c < in.v.width(); ++c) key.value.push_back(element(in.v, c));
    keys.push_back(std::move(key));
  }
  return softmax_of(keys, static_cast<std::size_t>(in.v.width()));
}

Error sinkhorn_error(const SinkhornData& data, const AllInputs<float>& in, Index samples) {
  std::vector<std::vector<double>> weights;
  for (Index h = 0; h < in.k.heads(); ++h) weights.push_back(sorting_weights(data, h));
  const Index group = in.q.heads() / in.k.heads();
  return sampled_error<float>(
      in, data.out, samples, [&](const AllInputs<float>&, Index head, Index row) {
        return sinkhorn_row(data, weights[static_cast<std::size_t>(head / group)], head, row);
      });
}

/// The values of each query head, where several share them: Reformer attention has no such heads.
std::vector<float> values_of_heads(const AllInputs<float>& in) {
  std::vector<float> values;
  const Index group = in.q.heads() / in.v.heads();
  if (group == 1) return values;
  for (Index h = 0; h < in.q.heads(); ++h) {
    for (Index row = 0; row < in.v.rows(); ++row) {
      for (Index c = 0; c < in.v.width(); ++c) values.push_back(in.v(0, h / group, row, c));
    }
  }
  return values;
}

/// Inputs and outputs of Reformer attention besides q (its qk), v and out.
struct ReformerData {
  ReformerData(const AllInputs<float>& in, const View<float>& to)
      : work(in, to),
        out(to),
        round_lse(static_cast<std::size_t>(in.q.heads() * in.q.rows() * op.options.rounds)),
        saved{work.saved.lse,
              View<float>(round_lse.data(), {1, in.q.heads(), in.q.rows(), op.options.rounds})},
        values(values_of_heads(in)),
        d_values(values.size()),
        inputs{in.q, in.v},
        grads{work.grads.q, work.grads.v} {
    const fovea::Shape shape = {1, in.q.heads(), in.v.rows(), in.v.width()};
    if (values.empty()) return;
    inputs.v = View<const float>(values.data(), shape);
    grads.v = View<float>(d_values.data(), shape);
  }
  ReformerData(const ReformerData&) = delete;
  ReformerData& operator=(const ReformerData&) = delete;

  void forward(ThreadPool& pool) const { op.forward(inputs, out, saved, pool); }
  void backward(ThreadPool& pool) const {
    op.backward(inputs, out, saved, work.d_out, grads, pool);
  }

  ReformerAttention op{{.chunk = kRows}};
  Training<float> work;
  View<float> out;
  std::vector<float> round_lse;
  fovea::ReformerSaved<float> saved;
  std::vector<float> values, d_values;
  fovea::ReformerInputs<float> inputs;
  fovea::ReformerGrads<float> grads;
};

/// The rows of a head in the order of a round.
std::vector<Index> sorted_rows(const std::vector<Index>& buckets, std::size_t first, Index rows) {
  std::vector<Index> order;
  for (Index n = 0; n < rows; ++n) order.push_back(n);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return buckets[first + static_cast<std::size_t>(a)] <
           buckets[first + static_cast<std::size_t>(b)];
  });
  return order;
}

/// What row sees in all rounds is in one softmax, as the rounds are weighed by their sums.
RowReference<float> reformer_row(const ReformerData& data,
                                 const std::vector<std::vector<Index>>& orders, Index head,
                                 Index row) {
  const auto& in = data.inputs;
  const double scale = 1 / std::sqrt(static_cast<double>(in.qk.width()));
  const Index chunks = in.qk.rows() / kRows;
  std::vector<SeenKey> keys;
  for (Index r = 0; r < data.op.options.rounds; ++r) {
    const std::vector<Index>& order =
        orders[static_cast<std::size_t>(head * data.op.options.rounds + r)];
    const Index chunk = (std::find(order.begin(), order.end(), row) - order.begin()) / kRows;
    for (Index t = 0; t < (chunks > 1 ? 2 : 1) * kRows; ++t) {
      const Index seen = (chunk + (t < kRows ? 0 : chunks - 1)) % chunks;
      const Index j = order[static_cast<std::size_t>(seen * kRows + t % kRows)];
      SeenKey key{0, 0, {}};
      double square = 0;
      for (Index c = 0; c < in.qk.width(); ++c) {
        const double x = in.qk(0, head, j, c);
        square += x * x;
        key.logit += scale * double{in.qk(0, head, row, c)} * x;
        key.size += std::abs(scale * double{in.qk(0, head, row, c)} * x);
      }
      key.logit = j == row ? -5e4 : key.logit / std::sqrt(square);
      key.size /= std::sqrt(square);
      for (Index c = 0; c < in.v.width(); ++c) key.value.push_back(in.v(0, head, j, c));
      keys.push_back(std::move(key));
    }
  }
  return softmax_of(keys, static_cast<std::size_t>(in.v.width()));
}

Error reformer_error(const ReformerData& data, const AllInputs<float>& in, Index samples) {
  const Index rounds = data.op.options.rounds;
  const Index rows = in.q.rows();
  std::vector<Index> buckets(static_cast<std::size_t>(in.q.heads() * rounds * rows));
  data.op.buckets(data.inputs, View<Index>(buckets.data(), {1, in.q.heads(), rounds, rows}));
  std::vector<std::vector<Index>> orders;
  for (Index n = 0; n < in.q.heads() * rounds; ++n) {
    orders.push_back(sorted_rows(buckets, static_cast<std::size_t>(n * rows), rows));
  }
  return sampled_error<float>(in, data.out, samples,
                              [&](const AllInputs<float>&, Index head, Index row) {
                                return reformer_row(data, orders, head, row);
                              });
}

Error error_of(const SinkhornData& data, const AllInputs<float>& in, Index samples) {
  return sinkhorn_error(data, in, samples);
}
Error error_of(const ReformerData& data, const AllInputs<float>& in, Index samples) {
  return reformer_error(data, in, samples);
}

/// Full attention alternating with a pass: over all rows, or over sequences of that many.
std::function<void(ThreadPool&)> full_pass(const AllInputs<float>& in, Index rows) {
  const auto out = std::make_shared<std::vector<float>>(
      static_cast<std::size_t>(in.q.heads() * in.q.rows() * in.v.width()));
  // A head of n rows is n / rows sequences.
  const Index pieces = in.q.heads() * in.q.rows() / rows;
  const auto cut = [&](const View<const float>& x) {
    return View<const float>(x.data(), {pieces, 1, rows, x.width()});
  };
  const fovea::SoftmaxInputs<float> inputs{cut(in.q), cut(in.k), cut(in.v)};
  const View<float> to(out->data(), {pieces, 1, rows, in.v.width()});
  return [out, inputs, to](ThreadPool& pool) { FullAttention{}.forward(inputs, to, pool); };
}

std::string why_not(const AttentionShape& shape) {
  return shape.keys % kRows == 0 && shape.queries == shape.keys ? "" : "N is not a multiple of 64";
}

enum class Beside { nothing, full, blocks };

/// An entry of one of the two. \tparam Data its call
template <class Data>
Entry sorted_entry(Names names, std::vector<Family> families, Beside beside = Beside::nothing) {
  constexpr bool is_reformer = std::is_same_v<Data, ReformerData>;
  const bool is_forward = names.pass != Pass::backward;
  const bool is_backward = names.pass != Pass::forward;
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.obstacle = why_not;
  if (beside != Beside::nothing) entry.other = beside == Beside::full ? "full" : "blocks of 128";
  entry.attended_pairs = [](const AttentionShape& shape) {
    return shape.query_heads * shape.queries * 2 * kRows * (is_reformer ? 4 : 1);
  };
  entry.f32 = {[=](const AllInputs<float>& in, const View<float>& out) {
                 const auto data = std::make_shared<Data>(in, out);
                 ThreadPool one(1);
                 if (!is_forward) data->forward(one);
                 Prepared pass{[=](ThreadPool& pool) {
                                 if (is_forward) data->forward(pool);
                                 if (is_backward) data->backward(pool);
                               },
                               [=](Index samples) { return error_of(*data, in, samples); }};
                 if (beside == Beside::full) pass.other = full_pass(in, in.q.rows());
                 if (beside == Beside::blocks) pass.other = full_pass(in, 2 * kRows);
                 return pass;
               },
               [=](const AttentionShape& shape, Index workers) {
                 if constexpr (is_reformer) {
                   const ReformerAttention op({.chunk = kRows});
                   const fovea::ReformerShape own{shape.batch, shape.query_heads, shape.queries,
                                                  shape.width, shape.value_width};
                   return is_backward ? op.backward_workspace_bytes<float>(own, workers)
                                      : op.workspace_bytes<float>(own, workers);
                 } else {
                   const SinkhornAttention op({.block = kRows});
                   return is_backward ? op.backward_workspace_bytes<float>(shape, workers)
                                      : op.workspace_bytes<float>(shape, workers);
                 }
               }};
  return entry;
}

}  // namespace

std::vector<Entry> sorted_entries() {
  const std::vector<Family> families = {{.lengths = {1024, 4096, 16384}},
                                        {.threads = 2, .lengths = {16384}}};
  const std::vector<Family> beside = {{.lengths = {4096, 16384}}};
  // clang-format off
  return {
      sorted_entry<SinkhornData>({"sinkhorn", "block:64", "Sinkhorn"}, families),
      sorted_entry<ReformerData>({"reformer", "chunk:64,rounds:4", "Reformer"}, families),
      sorted_entry<SinkhornData>({"sinkhorn", "block:64", "Sinkhorn, training", Pass::training}, {}),
      sorted_entry<ReformerData>({"reformer", "chunk:64,rounds:4", "Reformer, training", Pass::training}, {}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      sorted_entry<SinkhornData>({"sinkhorn", "block:64", "", Pass::backward}, families),
      sorted_entry<ReformerData>({"reformer", "chunk:64,rounds:4", "", Pass::backward}, families),
      sorted_entry<SinkhornData>({"sinkhorn", "block:64,beside:blocks"}, beside, Beside::blocks),
      sorted_entry<SinkhornData>({"sinkhorn", "block:64,beside:full"}, beside, Beside::full),
      sorted_entry<ReformerData>({"reformer", "chunk:64,rounds:4,beside:full"}, beside, Beside::full),
#endif
  };
  // clang-format on
}

}  // namespace bench
