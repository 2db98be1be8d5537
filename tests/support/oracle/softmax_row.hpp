// SPDX-License-Identifier: MIT
/// \file
/// One row of softmax attention with every option, as MATHS.md, sections 1 and 2 write it: loops
/// over float64 (long double for double inputs), nothing clever.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention/attention.hpp"
#include "fovea/attention/softmax/options.hpp"
#include "fovea/core/philox.hpp"
#include "support/oracle/reference_mask.hpp"
#include "support/reference.hpp"

namespace fovea_test {

/// An operator's parameters for the oracles.
template <class T>
struct OracleOperator {
  Wide<T> scale = 1;
  fovea::SoftmaxOptions options = {};  // but the scale
  ReferenceMask reference_mask;

  /// The scale in the options for queries of this width.
  static OracleOperator of(const fovea::SoftmaxOptions& options, ReferenceMask reference_mask,
                           Index width) {
    const Wide<T> root = 1 / std::sqrt(width == 0 ? 1 : static_cast<Wide<T>>(width));
    return {options.scale ? Wide<T>{*options.scale} : root, options, std::move(reference_mask)};
  }
};

/// The position of one sequence in the tensors: a batch entry, or a part of packed rows.
struct OracleSequence {
  Index index;
  Index batch;
  Index first_query;
  Index queries;
  Index first_key;
  Index keys;
  Index length;                     // its keys at and beyond are invisible
  std::optional<Index> first = {};  // the position of row 0, where the inputs give it

  Pair pair(Index h, Index row, Index j) const {
    return {index, h, row, j, queries, keys, length, first};
  }
  Index position(Index row, fovea::CausalAlignment alignment) const {
    return pair(0, row, 0).position(alignment);
  }
};

template <class T>
std::vector<OracleSequence> oracle_sequences(const bench::AllInputs<T>& in) {
  std::vector<OracleSequence> all;
  const auto& cu_q = in.cu_seqlens_q;
  const auto& cu_k = in.cu_seqlens_k.empty() ? cu_q : in.cu_seqlens_k;
  for (std::size_t s = 0; s + 1 < cu_q.size(); ++s) {
    const Index keys = cu_k[s + 1] - cu_k[s];
    all.push_back({static_cast<Index>(s), 0, cu_q[s], cu_q[s + 1] - cu_q[s], cu_k[s], keys, keys});
  }
  for (Index b = 0; cu_q.empty() && b < in.q.batch(); ++b) {
    const Index length = in.key_lengths.empty() ? in.k.rows() : in.key_lengths[as_size(b)];
    all.push_back({b, b, 0, in.q.rows(), 0, in.k.rows(), length});
  }
  for (std::size_t s = 0; s < in.first_positions.size(); ++s) all[s].first = in.first_positions[s];
  return all;
}

/// The index of an element of a tensor that may be broadcast: 0 where its extent is 1.
template <class U>
Shape broadcast_index(const View<U>& x, Shape index) {
  for (std::size_t d = 0; d < 4; ++d) {
    if (x.shape()[d] == 1) index[d] = 0;
  }
  return index;
}

template <class U>
U broadcast_at(const View<U>& x, const Shape& index) {
  const auto [b, h, i, j] = broadcast_index(x, index);
  return x(b, h, i, j);
}

/// The weights of one row. Vectors are over the visible keys. A tiny weight may be rounded to 0:
/// the gauge includes that, since with a sink or dropout there may be no other weight.
template <class T>
struct OracleRow {
  Index batch = 0;               // of the tensors
  Index head = 0;                // of q
  Index query = 0;               // its row of q
  Index key_head = 0;            // of k and v
  std::vector<Index> keys;       // rows of k and v
  std::vector<Wide<T>> s;        // logits
  std::vector<Wide<T>> through;  // derivative of the logit by scale <q, k>
  std::vector<Wide<T>> p;        // weights before dropout
  std::vector<Wide<T>> size;     // their gauge
  std::vector<Wide<T>> kept;     // what dropout multiplies them by: 0 or 1 / (1 - probability)
  Wide<T> sink = 0;              // the sink's weight
  Wide<T> lse = -std::numeric_limits<Wide<T>>::infinity();
  Wide<T> largest = 0;  // B: max over the logits of |scale| sum |q||k| + |bias| + |slope (i - j)|

  /// Adds a key. \param reach the magnitudes that its logit is computed from
  void add(Index key, Wide<T> logit, Wide<T> reach) {
    keys.push_back(key);
    s.push_back(logit);
    through.push_back(1);
    kept.push_back(1);
    largest = std::max(largest, reach);
  }
};

namespace detail {

/// Adds the pair of the row and key j of sequence s, if it is visible.
template <class T>
void add_pair(const bench::AllInputs<T>& in, const OracleOperator<T>& op, const OracleSequence& s,
              Index row, Index j, OracleRow<T>& to) {
  using W = Wide<T>;
  const Index h = to.head;
  const Shape at = {s.batch, h, to.query, s.first_key + j};
  if (j >= s.length || !op.reference_mask(s.pair(h, row, j))) return;
  if (!in.mask.empty() && !broadcast_at(in.mask, at)) return;
  const W bias = in.bias.empty() ? 0 : W{broadcast_at(in.bias, at)};
  if (bias == -std::numeric_limits<W>::infinity()) return;

  W dot = 0;
  W magnitude = 0;
  const Index width = in.q.width();
  const T* const q = width > 0 ? &in.q(s.batch, h, to.query, 0) : nullptr;
  const T* const k = width > 0 ? &in.k(s.batch, to.key_head, at[3], 0) : nullptr;
  for (Index c = 0; c < width; ++c) {
    const W product = W{q[c * in.q.strides()[3]]} * W{k[c * in.k.strides()[3]]};
    dot += product;
    magnitude += std::abs(product);
  }
  W z = op.scale * dot;
  W through = 1;
  if (op.options.soft_cap) {
    const W cap = *op.options.soft_cap;
    const W t = std::tanh(z / cap);
    z = cap * t;
    through = 1 - t * t;
    // In T, t may be 1 here, and results exactly 0: 0 is expected. The gauge has 1 for this factor.
    if (through < 4 * kRoundoff<fovea::Compute<T>>) through = 0;
  }
  const Index i = s.position(row, op.options.alignment);
  const W distance = static_cast<W>(i < j ? j - i : i - j);
  const W slope = in.alibi_slopes.empty() ? 0 : W{in.alibi_slopes[as_size(h)]};
  const double drop = op.options.dropout.probability;
  const bool drops =
      drop > 0 && fovea::uniform_draw<T>(op.options.dropout.seed, s.index, h, i, j) < drop;

  const W reach = std::abs(op.scale) * magnitude + std::abs(bias) + std::abs(slope) * distance;
  to.add(at[3], z + bias - slope * distance, reach);
  to.through.back() = through;
  to.kept.back() = drops ? 0 : 1 / (1 - W{drop});
}

}  // namespace detail

/// Makes the weights of a row of its logits. \param sink that of the head, if it has one
template <class T>
void set_weights(OracleRow<T>& row, std::optional<Wide<T>> sink = {}) {
  using W = Wide<T>;
  W most = sink.value_or(-std::numeric_limits<W>::infinity());
  for (const W s_j : row.s) most = std::max(most, s_j);
  // Logits of -inf alone: exp(-inf) = 0, so lse = log 0 and the weights are 0 / 0.
  const W shift = most == -std::numeric_limits<W>::infinity() ? 0 : most;
  W sum = sink ? std::exp(*sink - shift) : 0;
  for (const W s_j : row.s) sum += std::exp(s_j - shift);
  for (const W s_j : row.s) {
    row.p.push_back(std::exp(s_j - shift) / sum);
    row.size.push_back(row.p.back() + kFaint<T>);
  }
  if (sink) {
    row.sink = std::exp(*sink - shift) / sum;
    row.largest = std::max(row.largest, std::abs(*sink));
  }
  row.lse = shift + std::log(sum);
}

/// Row `row` of head h of sequence s. Visible NaN and infinity follow IEEE rules by themselves.
template <class T>
OracleRow<T> oracle_row(const bench::AllInputs<T>& in, const OracleOperator<T>& op,
                        const OracleSequence& s, Index h, Index row) {
  OracleRow<T> made;
  made.batch = s.batch;
  made.head = h;
  made.query = s.first_query + row;
  made.key_head = h / (in.q.heads() / in.k.heads());
  for (Index j = 0; j < s.keys; ++j) detail::add_pair(in, op, s, row, j, made);
  if (made.keys.empty()) return made;
  set_weights(made, in.sink.empty() ? std::nullopt : std::optional<Wide<T>>(in.sink[as_size(h)]));
  return made;
}

/// Calls f(row) for every row of every head of every sequence.
template <class T, class F>
void for_each_oracle_row(const bench::AllInputs<T>& in, const OracleOperator<T>& op, F&& f) {
  for (const OracleSequence& s : oracle_sequences(in)) {
    for (Index h = 0; h < in.q.heads(); ++h) {
      for (Index row = 0; row < s.queries; ++row) f(oracle_row(in, op, s, h, row));
    }
  }
}

}  // namespace fovea_test
