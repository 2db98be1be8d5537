// SPDX-License-Identifier: MIT
/// \file
/// The choice of keys as MATHS.md, section 5 writes it, and by how much it is decided: loops over
/// float64 (long double for double inputs), all scores of a row sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "fovea/attention/smart_bird/options.hpp"
#include "support/oracle/softmax_row.hpp"

namespace fovea_test {

using fovea::SamplingPolicy;

/// The keys that one row and head keeps.
struct OracleChoice {
  std::vector<Index> keys;  // ascending
  bool is_decided = true;   // whether rounding cannot make it another choice
  bool is_a_number = true;  // whether alpha contains no NaN
};

/// A score, and its rounding error.
template <class T>
struct OracleScore {
  Wide<T> value;
  Wide<T> low;
  Wide<T> high;
};

/// s = u p for log(alpha) = -loss, where `loss` may be wrong by `error`.
template <class T>
OracleScore<T> oracle_score(SamplingPolicy policy, Wide<T> u, Wide<T> loss, Wide<T> error) {
  using W = Wide<T>;
  const W room = 8 * kRoundoff<T>;
  const auto score = [&](W x) -> W {
    switch (policy) {
      case SamplingPolicy::squared_inverse_log:
        return u / (x * x);
      case SamplingPolicy::inverse_log:
        return u / x;
      case SamplingPolicy::raw:
        return u * std::exp(-x);
      case SamplingPolicy::top_k:
        return -x;
      default:
        return u;
    }
  };
  if (policy == SamplingPolicy::random) return {u, u, u};
  if (policy == SamplingPolicy::top_k) return {-loss, -loss - error, -loss + error};
  return {score(loss), score(loss + error) * (1 - room),
          score(std::max(W{0}, loss - error)) * (1 + room)};
}

/// The logits of one row of the sketch over its visible keys, and what rounding does to them.
template <class T>
struct OracleSketch {
  std::vector<Wide<T>> logits;
  Wide<T> lse = 0;
  Wide<T> largest = 0;  // the sum of magnitudes that a logit is computed from
  Wide<T> error = 0;
};

template <class T>
OracleSketch<T> oracle_sketch(const bench::AllInputs<T>& in, const fovea::SmartBirdOptions& options,
                              const OracleSequence& s, Index row, Index visible) {
  using W = Wide<T>;
  const Index width = in.sketch_q.width();
  const W root = 1 / std::sqrt(width == 0 ? W{1} : static_cast<W>(width));
  const W scale = options.sketch_scale ? W{*options.sketch_scale} : root;
  OracleSketch<T> made;
  for (Index j = 0; j < visible; ++j) {
    W dot = 0;
    W size = 0;
    for (Index c = 0; c < width; ++c) {
      const W product = W{in.sketch_q(s.batch, 0, s.first_query + row, c)} *
                        W{in.sketch_k(s.batch, 0, s.first_key + j, c)};
      dot += product;
      size += std::abs(product);
    }
    made.logits.push_back(scale * dot);
    made.largest = std::max(made.largest, std::abs(scale) * size);
  }
  W most = -std::numeric_limits<W>::infinity();
  for (const W z : made.logits) most = std::max(most, z);
  W sum = 0;
  for (const W z : made.logits) sum += std::exp(z - most);
  made.lse = most + std::log(sum);
  made.error = 8 * kRoundoff<T> * (1 + made.largest + std::abs(made.lse));
  return made;
}

/// The keys of row `row` of head h of sequence s.
template <class T>
OracleChoice oracle_choice(const bench::AllInputs<T>& in, const fovea::SmartBirdOptions& options,
                           const OracleSequence& s, Index h, Index row) {
  using W = Wide<T>;
  const Index position = s.position(row, options.alignment);
  const Index visible = options.causal ? std::clamp<Index>(position + 1, 0, s.length) : s.length;
  const OracleSketch<T> sketch = oracle_sketch(in, options, s, row, visible);
  OracleChoice choice;
  choice.is_a_number = options.policy == SamplingPolicy::random || std::isfinite(sketch.lse);
  std::vector<OracleScore<T>> scores;
  for (Index j = 0; j < visible; ++j) {
    const W u = in.draws.empty() ? W{fovea::uniform_draw<T>(options.seed, s.index, h, position, j)}
                                 : W{in.draws(s.batch, h, s.first_query + row, s.first_key + j)};
    const W loss = sketch.lse - sketch.logits[as_size(j)];
    scores.push_back(oracle_score<T>(options.policy, u, std::max(W{0}, loss), sketch.error));
  }
  std::vector<Index> order(as_size(visible));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return scores[as_size(a)].value > scores[as_size(b)].value;
  });
  const auto kept = order.begin() + std::min(visible, options.keys_per_row);
  W least = std::numeric_limits<W>::infinity();
  for (auto j = order.begin(); j != kept; ++j) least = std::min(least, scores[as_size(*j)].low);
  for (auto j = kept; j != order.end(); ++j) {
    choice.is_decided = choice.is_decided && scores[as_size(*j)].high < least;
  }
  choice.keys.assign(order.begin(), kept);
  std::sort(choice.keys.begin(), choice.keys.end());
  return choice;
}

}  // namespace fovea_test
