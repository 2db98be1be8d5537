// SPDX-License-Identifier: MIT
/// \file
/// Reformer attention as MATHS.md, section 7 writes it (Kitaev et al. 2020), and its gradients: by
/// plain loops in float64 (long double for double inputs). Gauges: those of softmax.hpp, B over the
/// candidates of all rounds. Held to central differences by tests/attention/reformer_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/reformer/options.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// A row and a candidate of one round.
template <class T>
struct OracleCandidate {
  Index key;
  bool is_self;
  Wide<T> s;     // the logit
  Wide<T> p;     // its weight, that of the round counted
  Wide<T> size;  // the gauge of p
};

/// The keys that one row of a sequence sees.
template <class T>
struct OracleHashedRow {
  std::vector<OracleCandidate<T>> candidates;  // of all rounds
  std::vector<Wide<T>> round_lse;
  Wide<T> lse = 0;
  Wide<T> largest = 0;  // B
};

/// One sequence: its buckets, its order, and the rows' weights.
template <class T>
class OracleHashes {
 public:
  using W = Wide<T>;

  /// \param buckets those of the rows [B, H, rounds, N], as where rounding may decide; by default
  /// they are computed
  OracleHashes(const fovea::ReformerInputs<T>& in, const fovea::ReformerOptions& options, Index b,
               Index h, const View<const Index>& buckets = {})
      : in_(in), options_(options), b_(b), h_(h) {
    length_ = in.key_lengths.empty() ? in.qk.rows() : in.key_lengths[as_size(b)];
    for (Index i = 0; i < length_; ++i) {
      W sum = 0;
      for (Index d = 0; d < in.qk.width(); ++d) sum += x(i, d) * x(i, d);
      norms_.push_back(std::sqrt(sum));
      for (Index d = 0; d < in.qk.width(); ++d) {
        keys_.push_back(x(i, d) / std::max(norms_.back(), W{1e-12}));
      }
    }
    for (Index r = 0; r < options.rounds; ++r) {
      std::vector<W> weights;
      if (buckets.empty()) weights = projection(r);
      std::vector<Index> of_round;
      for (Index i = 0; i < length_; ++i) {
        of_round.push_back(buckets.empty() ? bucket(weights, i) : buckets(b, h, r, i));
      }
      std::vector<Index> order(as_size(length_));
      for (Index i = 0; i < length_; ++i) order[as_size(i)] = i;
      std::stable_sort(order.begin(), order.end(), [&](Index x, Index y) {
        return of_round[as_size(x)] < of_round[as_size(y)];
      });
      buckets_.push_back(of_round);
      orders_.push_back(order);
    }
  }

  Index length() const { return length_; }
  /// Whether rounding cannot give a row another bucket.
  bool is_decided() const { return is_decided_; }

  W norm(Index i) const { return norms_[as_size(i)]; }
  W key(Index i, Index d) const { return keys_[as_size(i * in_.qk.width() + d)]; }
  W x(Index i, Index d) const { return in_.qk(b_, h_, i, d); }
  W scale() const {
    const Index width = in_.qk.width();
    return options_.scale ? W{*options_.scale}
                          : 1 / std::sqrt(width == 0 ? 1 : static_cast<W>(width));
  }

  /// The candidates of row i in round r, in order; a row in both chunks occurs twice.
  std::vector<Index> candidates(Index r, Index i) const {
    const std::vector<Index>& order = orders_[as_size(r)];
    const auto place = std::find(order.begin(), order.end(), i) - order.begin();
    const Index chunk = static_cast<Index>(place) / options_.chunk;
    const Index last = (length_ - 1) / options_.chunk;
    std::vector<Index> seen;
    add_chunk(r, chunk, r, i, seen);
    Index round = r;
    Index before = chunk - 1;
    if (chunk == 0) {
      if (options_.before_first == fovea::FirstChunk::none) return seen;
      before = last;
      if (options_.before_first == fovea::FirstChunk::previous_round) {
        round = (r + options_.rounds - 1) % options_.rounds;
      }
      if (round == r && before == chunk) return seen;
    }
    add_chunk(round, before, r, i, seen);
    return seen;
  }

  OracleHashedRow<T> row(Index i) const {
    OracleHashedRow<T> made;
    std::vector<std::vector<Index>> seen;
    std::vector<Index> all;
    for (Index r = 0; r < options_.rounds; ++r) {
      seen.push_back(candidates(r, i));
      all.insert(all.end(), seen.back().begin(), seen.back().end());
    }
    std::vector<std::vector<W>> logits;
    W most = -std::numeric_limits<W>::infinity();
    for (const std::vector<Index>& of_round : seen) {
      std::vector<W> s;
      for (const Index j : of_round) {
        const Index times = options_.correct_duplicates ? std::count(all.begin(), all.end(), j) : 1;
        s.push_back(logit(i, j, times, made));
      }
      W largest = -std::numeric_limits<W>::infinity();
      for (const W z : s) largest = std::max(largest, z);
      W sum = 0;
      for (const W z : s) sum += std::exp(z - largest);
      made.round_lse.push_back(largest + std::log(sum));
      most = std::max(most, made.round_lse.back());
      logits.push_back(s);
    }
    W sum = 0;
    for (const W lse : made.round_lse) sum += std::exp(lse - most);
    made.lse = most + std::log(sum);
    for (std::size_t r = 0; r < seen.size(); ++r) {
      const W weight = std::exp(made.round_lse[r] - most) / sum;
      for (std::size_t n = 0; n < seen[r].size(); ++n) {
        const W p = weight * std::exp(logits[r][n] - made.round_lse[r]);
        made.candidates.push_back({seen[r][n], seen[r][n] == i, logits[r][n], p, p + kFaint<T>});
      }
    }
    return made;
  }

  OracleOut<T> out(const OracleHashedRow<T>& row) const {
    OracleOut<T> made;
    for (Index c = 0; c < in_.v.width(); ++c) {
      W sum = 0;
      W size = 0;
      for (const OracleCandidate<T>& j : row.candidates) {
        const W v = in_.v(b_, h_, j.key, c);
        sum += j.p * v;
        size += j.size * std::abs(v);
      }
      made.value.push_back(sum);
      made.gauge.push_back(size * (1 + row.largest));
    }
    return made;
  }

 private:
  /// A normally distributed number, by Box and Muller.
  double drawn_projection(Index r, Index d, Index c) const {
    const auto u = [&](Index n) {
      return fovea::uniform_draw<double>(options_.seed, r, 0, d, 2 * c + n);
    };
    return std::sqrt(-2 * std::log(u(0))) * std::cos(2 * std::acos(-1.0) * u(1));
  }

  /// The projection of a round, [D, buckets / 2].
  std::vector<W> projection(Index r) const {
    std::vector<W> made;
    for (Index d = 0; d < in_.qk.width(); ++d) {
      for (Index c = 0; c < options_.buckets / 2; ++c) {
        made.push_back(in_.projection.empty()
                           ? static_cast<W>(static_cast<T>(drawn_projection(r, d, c)))
                           : W{in_.projection(0, r, d, c)});
      }
    }
    return made;
  }

  Index bucket(const std::vector<W>& weights, Index i) {
    const Index half = options_.buckets / 2;
    std::vector<W> products;
    std::vector<W> sizes;
    for (Index c = 0; c < options_.buckets; ++c) {
      W y = 0;
      W size = 0;
      for (Index d = 0; d < in_.qk.width(); ++d) {
        const W product = x(i, d) * weights[as_size(d * half + c % half)];
        y += product;
        size += std::abs(product);
      }
      products.push_back(c >= half ? -y : y);
      sizes.push_back(size);
    }
    const auto best = std::max_element(products.begin(), products.end());  // the first of them
    const std::size_t at = as_size(best - products.begin());
    const W room = static_cast<W>(in_.qk.width() + 2) * kRoundoff<T>;
    for (std::size_t c = 0; c < products.size(); ++c) {
      if (c != at && *best - products[c] < room * (sizes[at] + sizes[c])) is_decided_ = false;
    }
    return static_cast<Index>(at);
  }

  void add_chunk(Index round, Index chunk, Index own_round, Index i, std::vector<Index>& to) const {
    const Index end = std::min(length_, (chunk + 1) * options_.chunk);
    for (Index place = chunk * options_.chunk; place < end; ++place) {
      const Index j = orders_[as_size(round)][as_size(place)];
      if (options_.causal && j > i) continue;
      const bool is_same = round == own_round && buckets_[as_size(round)][as_size(i)] ==
                                                     buckets_[as_size(round)][as_size(j)];
      if (!options_.across_buckets && !is_same) continue;
      to.push_back(j);
    }
  }

  W logit(Index i, Index j, Index times, OracleHashedRow<T>& row) const {
    W s = 0;
    W magnitude = 0;
    for (Index d = 0; d < in_.qk.width(); ++d) {
      const W product = x(i, d) * key(j, d);
      s += product;
      magnitude += std::abs(product);
    }
    s *= scale();
    const W more = options_.correct_duplicates ? std::log(static_cast<W>(times)) : 0;
    row.largest = std::max(row.largest, std::abs(scale()) * magnitude + more);
    return (i == j ? W{-5e4} : s) - more;
  }

  const fovea::ReformerInputs<T>& in_;
  const fovea::ReformerOptions& options_;
  Index b_;
  Index h_;
  Index length_ = 0;
  bool is_decided_ = true;
  std::vector<W> norms_;
  std::vector<W> keys_;  // [length, D]
  std::vector<std::vector<Index>> buckets_;
  std::vector<std::vector<Index>> orders_;
};

/// The expected results of Reformer attention.
template <class T>
struct ExpectedReformer {
  Reference<T> out, lse, round_lse;
};

template <class T>
ExpectedReformer<T> reformer_oracle(const fovea::ReformerInputs<T>& in,
                                    const fovea::ReformerOptions& options) {
  using W = Wide<T>;
  constexpr W none = -std::numeric_limits<W>::infinity();
  const Index width = in.v.width();
  const Shape rows = {in.qk.batch(), in.qk.heads(), in.qk.rows(), 1};
  ExpectedReformer<T> expected{zero_reference<T>({rows[0], rows[1], rows[2], width}),
                               zero_reference<T>(rows),
                               zero_reference<T>({rows[0], rows[1], rows[2], options.rounds})};
  std::fill(expected.lse.value.begin(), expected.lse.value.end(), none);
  std::fill(expected.round_lse.value.begin(), expected.round_lse.value.end(), none);
  for_each_index({rows[0], rows[1], 1, 1}, [&](Index b, Index h, Index, Index) {
    const OracleHashes<T> hashes(in, options, b, h);
    for (Index i = 0; i < hashes.length(); ++i) {
      const OracleHashedRow<T> row = hashes.row(i);
      const std::size_t at = place_of(rows, b, h, i, 0);
      expected.lse.value[at] = row.lse;
      expected.lse.gauge[at] = 1 + row.largest + std::abs(row.lse);
      for (std::size_t r = 0; r < row.round_lse.size(); ++r) {
        expected.round_lse.value[at * row.round_lse.size() + r] = row.round_lse[r];
        expected.round_lse.gauge[at * row.round_lse.size() + r] =
            1 + row.largest + std::abs(row.round_lse[r]);
      }
      const OracleOut<T> out = hashes.out(row);
      const auto first = static_cast<Index>(place_of(expected.out.shape, b, h, i, 0));
      std::ranges::copy(out.value, expected.out.value.begin() + first);
      std::ranges::copy(out.gauge, expected.out.gauge.begin() + first);
    }
  });
  return expected;
}

/// The expected results of a backward pass of Reformer attention.
template <class T>
struct ExpectedReformerGrads {
  Reference<T> qk, v;
};

/// The gradients of sum d_out out.
template <class T, class D>
ExpectedReformerGrads<T> reformer_grad_oracle(const fovea::ReformerInputs<T>& in,
                                              const fovea::ReformerOptions& options,
                                              const View<D>& d_out) {
  using W = Wide<T>;
  ExpectedReformerGrads<T> grads{zero_reference<T>(in.qk.shape()), zero_reference<T>(in.v.shape())};
  const Index width = in.qk.width();
  for_each_index({in.qk.batch(), in.qk.heads(), 1, 1}, [&](Index b, Index h, Index, Index) {
    const OracleHashes<T> hashes(in, options, b, h);
    Reference<T> d_key = zero_reference<T>({1, 1, hashes.length(), width});
    for (Index i = 0; i < hashes.length(); ++i) {
      const OracleHashedRow<T> row = hashes.row(i);
      const W condition = 1 + row.largest;
      std::vector<detail::Sum<T>> products;
      detail::Sum<T> delta;
      for (const OracleCandidate<T>& j : row.candidates) {
        detail::Sum<T> sum;
        for (Index c = 0; c < in.v.width(); ++c) {
          sum.add(W{d_out(b, h, i, c)} * W{in.v(b, h, j.key, c)});
          detail::add(grads.v, {b, h, j.key, c}, j.p * W{d_out(b, h, i, c)},
                      j.size * std::abs(W{d_out(b, h, i, c)}) * condition);
        }
        products.push_back(sum);
        delta.value += j.p * sum.value;
        delta.magnitude += j.size * sum.magnitude;
      }
      for (std::size_t n = 0; n < row.candidates.size(); ++n) {
        const OracleCandidate<T>& j = row.candidates[n];
        if (j.is_self) continue;  // its logit is a constant
        const W ds = hashes.scale() * j.p * (products[n].value - delta.value);
        const W size = std::abs(hashes.scale()) * j.size *
                       (products[n].magnitude + delta.magnitude) * condition;
        for (Index d = 0; d < width; ++d) {
          const W k = hashes.key(j.key, d);
          detail::add(grads.qk, {b, h, i, d}, ds * k, size * std::abs(k));
          detail::add(d_key, {0, 0, j.key, d}, ds * hashes.x(i, d),
                      size * std::abs(hashes.x(i, d)));
        }
      }
    }
    for (Index j = 0; j < hashes.length(); ++j) {
      const W norm = hashes.norm(j);
      detail::Sum<T> along;
      W along_size = 0;
      const auto at = [&](Index d) { return place_of(d_key.shape, 0, 0, j, d); };
      for (Index d = 0; d < width; ++d) {
        along.add(hashes.key(j, d) * d_key.value[at(d)]);
        along_size += std::abs(hashes.key(j, d)) * d_key.gauge[at(d)];
      }
      if (!(norm > W{1e-12})) along = {};
      if (!(norm > W{1e-12})) along_size = 0;
      const W inverse = 1 / std::max(norm, W{1e-12});
      for (Index d = 0; d < width; ++d) {
        const W k = hashes.key(j, d);
        detail::add(grads.qk, {b, h, j, d}, inverse * (d_key.value[at(d)] - k * along.value),
                    inverse * (d_key.gauge[at(d)] + std::abs(k) * along_size));
      }
    }
  });
  detail::drop_noise(grads.qk);
  return grads;
}

}  // namespace fovea_test
