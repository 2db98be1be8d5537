// SPDX-License-Identifier: MIT
/// \file
/// The delta rule token by token in a wider type: states and errors, and its gradients by the
/// reverse sweep. An update does not lengthen the errors of the state, so the unit of an element is
/// computed from running maxima: of the state's own elements, and of |v_t| + |W_{t-1} k'_t|
/// (tests/support/oracle/delta_rule.hpp).
#pragma once

#include <vector>

#include "bench/reference/far_model.hpp"
#include "bench/reference/gradient_reference.hpp"

namespace bench {

/// The features of a row divided by their sum.
template <class T>
struct FeatureShares {
  using W = Wide<T>;
  std::vector<W> share;  // [D]
  W sum = 0;

  FeatureShares(const WideMap<W>& map, const View<const T>& x, Index head, Index row) {
    for (Index d = 0; d < x.width(); ++d) {
      share.push_back(map.value(x(0, head, row, d)));
      sum += share.back();
    }
    for (W& s : share) s /= sum;
  }

  /// Adds the gradient by x to `to` from the one by the shares. \param size its unit
  void add_gradient(const WideMap<W>& map, const View<const T>& x, Index head, Index row,
                    const std::vector<W>& by_share, const std::vector<W>& size,
                    GradientRow<T>& to) const {
    W mean = 0;
    W mean_size = 0;
    for (std::size_t d = 0; d < share.size(); ++d) {
      mean += share[d] * by_share[d];
      mean_size += share[d] * size[d];
    }
    for (std::size_t d = 0; d < share.size(); ++d) {
      const W slope = map.derivative(x(0, head, row, static_cast<Index>(d))) / sum;
      to.value[d] += slope * (by_share[d] - mean);
      to.unit[d] += std::abs(slope) * (size[d] + mean_size);
    }
  }
};

/// The state of one key head as tokens come.
template <class T>
struct DeltaHead {
  using W = Wide<T>;

  DeltaHead(const FarTokens<T>& tokens, const WideMap<W>& feature_map, Index key_head)
      : x(tokens),
        map(feature_map),
        head(key_head),
        width(static_cast<std::size_t>(tokens.in.v.width())),
        state(static_cast<std::size_t>(tokens.in.k.width()) * width),
        most(state.size()),
        error(width),
        error_size(width) {}

  /// The token at position t. \pre those before it were added.
  void add(Index t) {
    const FeatureShares<T> k(map, x.in.k, head, x.row(t));
    const W beta = x.in.beta(0, head, x.row(t), 0);
    for (std::size_t c = 0; c < width; ++c) error[c] = 0;
    for (std::size_t d = 0; d < k.share.size(); ++d) {
      for (std::size_t c = 0; c < width; ++c) error[c] += k.share[d] * state[d * width + c];
    }
    for (std::size_t c = 0; c < width; ++c) {
      const W v = x.in.v(0, head, x.row(t), static_cast<Index>(c));
      error_size[c] = std::max(error_size[c], std::abs(v) + std::abs(error[c]));
      error[c] = v - error[c];
    }
    for (std::size_t d = 0; d < k.share.size(); ++d) {
      for (std::size_t c = 0; c < width; ++c) {
        W& element = state[d * width + c];
        element += beta * k.share[d] * error[c];
        most[d * width + c] = std::max(most[d * width + c], std::abs(element));
      }
    }
  }

  /// Column c of what a row with these shares reads, and its unit.
  W read(const std::vector<W>& q, std::size_t c) const { return sum(q, state, c); }
  W read_size(const std::vector<W>& q, std::size_t c) const {
    return sum(q, most, c) + error_size[c];
  }

  const FarTokens<T>& x;
  const WideMap<W>& map;
  Index head;
  std::size_t width;          // Dv
  std::vector<W> state;       // [D, Dv]
  std::vector<W> most;        // [D, Dv] running maximum of |state|
  std::vector<W> error;       // [Dv] v - W k' of the last token
  std::vector<W> error_size;  // [Dv] running maximum of |v| + |W k'|

 private:
  W sum(const std::vector<W>& q, const std::vector<W>& matrix, std::size_t c) const {
    W total = 0;
    for (std::size_t d = 0; d < q.size(); ++d) total += q[d] * matrix[d * width + c];
    return total;
  }
};

/// Sampled rows of the gradients of one key head, and of one query head at a time of those that
/// read it, Nq = Nk. What the query heads add to k, v and beta is summed, and so are its units.
template <class T>
struct SampledGradients {
  std::vector<Index> rows;
  std::vector<GradientRow<T>> q, k, v, beta;  // one for each row

  SampledGradients(const AllInputs<T>& in, Index key_head, Index samples) {
    const Index count = std::min(samples, in.q.rows());
    for (Index s = 0; s < count; ++s) {
      rows.push_back(sampled_row(s, count, key_head, in.q.rows()));
      q.emplace_back(in.q.width());
      k.emplace_back(in.k.width());
      v.emplace_back(in.v.width());
      beta.emplace_back(1);
    }
  }

  /// Before the gradients of a further query head.
  void begin_head() {
    for (GradientRow<T>& row : q) row = GradientRow<T>(static_cast<Index>(row.value.size()));
  }

  /// Calls f(sample) for those whose row is n.
  template <class F>
  void at(Index n, const F& f) const {
    for (std::size_t s = 0; s < rows.size(); ++s) {
      if (rows[s] == n) f(s);
    }
  }
};

/// Adds the gradients of the delta rule's term for one query head. \pre Nq = Nk
template <class T>
class DeltaSweep {
  using W = Wide<T>;
  using Vector = std::vector<W>;

 public:
  /// \param weight of the term in the output   \param d_out [1, Hq, N, Dv]
  DeltaSweep(const FarTokens<T>& x, const WideMap<W>& map, Index head, W weight,
             const View<const T>& d_out, SampledGradients<T>& to)
      : x_(x),
        map_(map),
        head_(head),
        key_head_(x.key_head(head)),
        weight_(weight),
        d_out_(d_out),
        to_(to) {}

  void run() {
    forward();
    const std::size_t elements = static_cast<std::size_t>(x_.in.k.width()) * width();
    by_state_.assign(elements, 0);
    most_.assign(elements, 0);
    by_update_size_.assign(width(), 0);
    for (Index t = x_.count - 1; t >= 0; --t) pass(t);
  }

 private:
  /// What a sampled token needs of the states before and after it.
  struct Kept {
    Vector before;  // [D, Dv]
    Vector most;    // [D, Dv]
  };

  std::size_t width() const { return static_cast<std::size_t>(x_.in.v.width()); }
  W d_out(Index t, std::size_t c) const {
    return weight_ * static_cast<W>(d_out_(0, head_, t, static_cast<Index>(c)));
  }

  void forward() {
    DeltaHead<T> states(x_, map_, key_head_);
    kept_.resize(to_.rows.size());
    for (Index t = 0; t < x_.count; ++t) {
      to_.at(t, [&](std::size_t s) { kept_[s].before = states.state; });
      states.add(t);
      errors_.insert(errors_.end(), states.error.begin(), states.error.end());
      error_sizes_.insert(error_sizes_.end(), states.error_size.begin(), states.error_size.end());
      to_.at(t, [&](std::size_t s) {
        kept_[s].most = states.most;
        add_query(states, s);
      });
    }
  }

  void add_query(const DeltaHead<T>& states, std::size_t s) {
    const Index row = to_.rows[s];
    const FeatureShares<T> q(map_, x_.in.q, head_, row);
    Vector by_q(q.share.size());
    Vector size(q.share.size());
    for (std::size_t d = 0; d < by_q.size(); ++d) {
      for (std::size_t c = 0; c < width(); ++c) {
        by_q[d] += states.state[d * width() + c] * d_out(row, c);
        size[d] += (states.most[d * width() + c] + states.error_size[c]) * std::abs(d_out(row, c));
      }
    }
    q.add_gradient(map_, x_.in.q, head_, row, by_q, size, to_.q[s]);
  }

  /// From the gradient by the state after token t to that by the state before it.
  void pass(Index t) {
    const FeatureShares<T> q(map_, x_.in.q, head_, t);
    const FeatureShares<T> k(map_, x_.in.k, key_head_, t);
    const W beta = x_.in.beta(0, key_head_, t, 0);
    Vector by_update(width());
    Vector size(width());
    Vector d(width());
    for (std::size_t c = 0; c < width(); ++c) d[c] = d_out(t, c);
    for (std::size_t n = 0; n < k.share.size(); ++n) {
      W* const row = by_state_.data() + n * width();
      W* const most = most_.data() + n * width();
      for (std::size_t c = 0; c < width(); ++c) {
        row[c] += q.share[n] * d[c];
        most[c] = std::max(most[c], std::abs(row[c]));
        by_update[c] += row[c] * k.share[n];
        size[c] += most[c] * k.share[n];
      }
    }
    for (std::size_t c = 0; c < width(); ++c) {
      by_update_size_[c] = std::max(by_update_size_[c], std::abs(by_update[c]));
      size[c] += by_update_size_[c];
    }
    to_.at(t, [&](std::size_t s) { add_token(t, s, k, beta, by_update, size); });
    for (std::size_t n = 0; n < k.share.size(); ++n) {
      for (std::size_t c = 0; c < width(); ++c) {
        W& element = by_state_[n * width() + c];
        element -= beta * by_update[c] * k.share[n];
        most_[n * width() + c] = std::max(most_[n * width() + c], std::abs(element));
      }
    }
  }

  void add_token(Index t, std::size_t s, const FeatureShares<T>& k, W beta, const Vector& by_update,
                 const Vector& size) {
    const W* const error = errors_.data() + static_cast<std::size_t>(t) * width();
    const W* const error_size = error_sizes_.data() + static_cast<std::size_t>(t) * width();
    Vector by_k(k.share.size());
    Vector by_k_size(k.share.size());
    for (std::size_t c = 0; c < width(); ++c) {
      W e_size = error_size[c];
      for (std::size_t n = 0; n < k.share.size(); ++n) {
        e_size += kept_[s].most[n * width() + c] * k.share[n];
      }
      to_.beta[s].value[0] += by_update[c] * error[c];
      to_.beta[s].unit[0] += size[c] * e_size;
      to_.v[s].value[c] += beta * by_update[c];
      to_.v[s].unit[c] += beta * size[c];
      for (std::size_t n = 0; n < k.share.size(); ++n) {
        const std::size_t i = n * width() + c;
        by_k[n] += beta * (by_state_[i] * error[c] - kept_[s].before[i] * by_update[c]);
        by_k_size[n] += beta * ((most_[i] + by_update_size_[c]) * e_size +
                                (kept_[s].most[i] + error_size[c]) * size[c]);
      }
    }
    k.add_gradient(map_, x_.in.k, key_head_, t, by_k, by_k_size, to_.k[s]);
  }

  const FarTokens<T>& x_;
  const WideMap<W>& map_;
  Index head_;
  Index key_head_;
  W weight_;
  const View<const T>& d_out_;
  SampledGradients<T>& to_;
  std::vector<Kept> kept_;  // [samples]
  Vector errors_;           // [N, Dv]
  Vector error_sizes_;      // [N, Dv]
  Vector by_state_;         // [D, Dv] the gradient by the state
  Vector most_;             // [D, Dv] running maximum of its magnitude
  Vector by_update_size_;   // [Dv] that of the gradient by the update
};

}  // namespace bench
