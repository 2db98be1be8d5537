// SPDX-License-Identifier: MIT
/// \file
/// The delta rule as MATHS.md, section 4 writes it (FMMformer, Table 2; Schlag et al. 2021), token
/// by token:
///   u_t = beta_t (v_t - W_{t-1} k'_t),  W_t = W_{t-1} + u_t k'_t^T,  o_t = W_t q'_t,
/// and its gradients by the reverse sweep. k' and q' are features divided by their sum.
///
/// Gauges. An update multiplies the errors of the state by I - beta k' k'^T, which does not
/// lengthen them: they do not pile up as sums of magnitudes would, but stay of the size of the
/// largest that came in: of the state's own elements, and of v_t - W_{t-1} k'_t, whose two parts
/// may cancel. So with W^ the running maximum of |W|, and V^ that of |v_t| + |W_{t-1} k'_t|,
///   o_c: sum_d W^_dc q'_d + V^_c;
/// the sweep contracts in the same way, and its gauges are made in the same way of G, the gradient
/// by the state, and of du.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "support/oracle/feature_map.hpp"
#include "support/oracle/softmax.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// The delta rule's parameters for the oracles.
template <class T>
struct OracleDelta {
  OracleMap<T> map;
  fovea::CausalAlignment alignment = fovea::CausalAlignment::bottom_right;
};

/// Features divided by their sum, which 0 stays.
template <class T>
struct OracleShares {
  using W = Wide<T>;
  std::vector<W> share;  // [D]
  W sum = 0;

  OracleShares(const OracleMap<T>& map, const View<const T>& x, Index b, Index h, Index n) {
    for (Index d = 0; d < x.width(); ++d) {
      share.push_back(feature(map, W{x(b, h, n, d)}));
      sum += share.back();
    }
    for (W& s : share) s = sum == 0 ? 0 : s / sum;
  }

  /// Adds the gradient by x to that row of `to` from the one by the shares. \param size its gauge
  void add_grad(const OracleMap<T>& map, const View<const T>& x, const Shape& row,
                const std::vector<W>& by_share, const std::vector<W>& size,
                Reference<T>& to) const {
    if (sum == 0) {
      // 0, or 0 times what is not finite.
      for (std::size_t d = 0; d < share.size(); ++d) {
        if (std::isfinite(by_share[d])) continue;
        to.relax(place_of(to.shape, row[0], row[1], row[2], static_cast<Index>(d)),
                 Demand::nothing);
      }
      return;
    }
    W mean = 0;
    W mean_size = 0;
    for (std::size_t d = 0; d < share.size(); ++d) {
      mean += share[d] * by_share[d];
      mean_size += share[d] * size[d];
    }
    for (std::size_t d = 0; d < share.size(); ++d) {
      Shape at = row;
      at[3] = static_cast<Index>(d);
      const W slope = map.derivative(W{x(at[0], at[1], at[2], at[3])}) / sum;
      detail::add(to, at, slope * (by_share[d] - mean),
                  (std::abs(slope) + kFaint<T> / sum) * (size[d] + mean_size));
    }
  }
};

/// The states of one key head of one sequence, token by token.
template <class T>
struct OracleStates {
  using W = Wide<T>;
  struct Token {
    OracleShares<T> k;
    W beta;
    std::vector<W> error;       // [Dv] v - W k'
    std::vector<W> error_size;  // [Dv] running maximum of |v| + |W k'|
    std::vector<W> state;       // [D, Dv] after it
    std::vector<W> most;        // [D, Dv] running maximum of |state|
  };
  std::vector<Token> tokens;

  /// \param count tokens that any row sees
  OracleStates(const bench::AllInputs<T>& in, const OracleDelta<T>& op, const OracleSequence& s,
               Index head, Index count) {
    const auto width = as_size(in.v.width());
    std::vector<W> state(as_size(in.k.width()) * width);
    std::vector<W> most = state;
    std::vector<W> error_size(width);
    for (Index t = 0; t < count; ++t) {
      const Index j = s.first_key + t;
      Token token{
          {op.map, in.k, s.batch, head, j}, W{in.beta(s.batch, head, j, 0)}, {}, {}, {}, {}};
      for (std::size_t c = 0; c < width; ++c) {
        W read = 0;
        for (std::size_t d = 0; d < token.k.share.size(); ++d) {
          read += state[d * width + c] * token.k.share[d];
        }
        const W v = in.v(s.batch, head, j, static_cast<Index>(c));
        token.error.push_back(v - read);
        error_size[c] = std::max(error_size[c], std::abs(v) + std::abs(read));
      }
      for (std::size_t d = 0; d < token.k.share.size(); ++d) {
        for (std::size_t c = 0; c < width; ++c) {
          W& x = state[d * width + c];
          x += token.beta * token.k.share[d] * token.error[c];
          most[d * width + c] = std::max(most[d * width + c], std::abs(x));
        }
      }
      token.error_size = error_size;
      token.state = state;
      token.most = most;
      tokens.push_back(std::move(token));
    }
  }
};

/// A row that sees tokens [0, last].
struct OracleDeltaRow {
  Index query;  // its row of q
  Index last;
};

namespace detail {

/// Calls f(sequence, key head, states, rows): the rows are those of each of its query heads.
template <class T, class F>
void for_each_delta_head(const bench::AllInputs<T>& in, const OracleDelta<T>& op, F&& f) {
  for (const OracleSequence& s : oracle_sequences(in)) {
    const Index length = std::min(s.keys, s.length);
    std::vector<OracleDeltaRow> rows;
    for (Index r = 0; r < s.queries; ++r) {
      const Index last = std::min(s.position(r, op.alignment), length - 1);
      if (last >= 0) rows.push_back({s.first_query + r, last});
    }
    if (rows.empty()) continue;
    for (Index g = 0; g < in.k.heads(); ++g) {
      f(s, g, OracleStates<T>(in, op, s, g, rows.back().last + 1), rows);
    }
  }
}

}  // namespace detail

/// [B, Hq, Nq, Dv].
template <class T>
Reference<T> delta_oracle(const bench::AllInputs<T>& in, const OracleDelta<T>& op) {
  using W = Wide<T>;
  const Index width = in.v.width();
  Reference<T> out = zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), width});
  const Index group = in.k.heads() == 0 ? 1 : in.q.heads() / in.k.heads();
  detail::for_each_delta_head(
      in, op, [&](const auto& s, Index g, const auto& states, const auto& rows) {
        for (Index h = g * group; h < (g + 1) * group; ++h) {
          for (const OracleDeltaRow& row : rows) {
            const OracleShares<T> q(op.map, in.q, s.batch, h, row.query);
            const auto& token = states.tokens[as_size(row.last)];
            for (Index c = 0; c < width; ++c) {
              W value = 0;
              W size = token.error_size[as_size(c)];
              for (std::size_t d = 0; d < q.share.size(); ++d) {
                const std::size_t place = d * as_size(width) + as_size(c);
                value += token.state[place] * q.share[d];
                size += token.most[place] * q.share[d];
              }
              const std::size_t i = place_of(out.shape, s.batch, h, row.query, c);
              out.value[i] = value;
              out.gauge[i] = size;
              // Infinities are combined with features that cancel them or are 0, in different
              // orders.
              const bool is_certain = op.map.positive && std::isnan(value);
              if (!std::isfinite(value) && !is_certain) out.relax(i, Demand::not_finite);
            }
          }
        }
      });
  return out;
}

namespace detail {

/// The reverse sweep over one key head. `by_state` is the gradient by the state after the sweep's
/// current token; matrices are [D, Dv].
template <class T, class D>
class DeltaSweep {
 public:
  using W = Wide<T>;
  using Vector = std::vector<W>;

  DeltaSweep(const bench::AllInputs<T>& in, const OracleDelta<T>& op, const OracleSequence& s,
             Index g, const OracleStates<T>& states, const View<D>& d_out, ExpectedGrads<T>& to)
      : in_(in),
        op_(op),
        s_(s),
        head_(g),
        states_(states),
        d_out_(d_out),
        to_(to),
        width_(as_size(in.v.width())),
        by_state_(as_size(in.k.width()) * width_),
        most_(by_state_.size()),
        by_error_size_(width_) {}

  void run(const std::vector<OracleDeltaRow>& rows) {
    const Index group = in_.q.heads() / in_.k.heads();
    std::size_t row = rows.size();
    for (Index t = rows.back().last; t >= 0; --t) {
      for (; row > 0 && rows[row - 1].last == t; --row) {
        for (Index h = head_ * group; h < (head_ + 1) * group; ++h) {
          add_row(h, rows[row - 1].query, states_.tokens[as_size(t)]);
        }
      }
      pass_token(t);
    }
  }

 private:
  void add_row(Index h, Index query, const typename OracleStates<T>::Token& token) {
    const OracleShares<T> q(op_.map, in_.q, s_.batch, h, query);
    Vector by_q(q.share.size());
    Vector size(q.share.size());
    for (std::size_t c = 0; c < width_; ++c) {
      const W d_out = d_out_(s_.batch, h, query, static_cast<Index>(c));
      for (std::size_t d = 0; d < q.share.size(); ++d) {
        const std::size_t i = d * width_ + c;
        by_q[d] += token.state[i] * d_out;
        size[d] += (token.most[i] + token.error_size[c]) * std::abs(d_out);
        by_state_[i] += d_out * q.share[d];
        most_[i] = std::max(most_[i], std::abs(by_state_[i]));
      }
    }
    q.add_grad(op_.map, in_.q, {s_.batch, h, query, 0}, by_q, size, to_.q);
  }

  /// From the gradient by the state after token t to that by the state before it.
  void pass_token(Index t) {
    const auto& token = states_.tokens[as_size(t)];
    const Vector none(by_state_.size());
    const Vector& before = t == 0 ? none : states_.tokens[as_size(t - 1)].state;
    const Shape row = {s_.batch, head_, s_.first_key + t, 0};
    const auto width = token.k.share.size();
    Vector by_k(width);
    Vector by_k_size(width);
    for (std::size_t c = 0; c < width_; ++c) {
      W by_update = 0;  // by beta times the error
      W size = 0;
      for (std::size_t d = 0; d < width; ++d) {
        by_update += by_state_[d * width_ + c] * token.k.share[d];
        size += most_[d * width_ + c] * token.k.share[d];
      }
      by_error_size_[c] = std::max(by_error_size_[c], std::abs(by_update));
      size += by_error_size_[c];
      const W error_size = token.error_size[c] + sum_of_most(token, c);
      detail::add(to_.beta, row, by_update * token.error[c], size * error_size);
      const W by_error = token.beta * by_update;
      detail::add(to_.v, {row[0], row[1], row[2], static_cast<Index>(c)}, by_error,
                  token.beta * size);
      for (std::size_t d = 0; d < width; ++d) {
        const std::size_t i = d * width_ + c;
        by_k[d] += by_state_[i] * token.beta * token.error[c] - before[i] * by_error;
        by_k_size[d] += token.beta * ((most_[i] + by_error_size_[c]) * error_size +
                                      (token.most[i] + token.error_size[c]) * size);
        by_state_[i] -= by_error * token.k.share[d];
        most_[i] = std::max(most_[i], std::abs(by_state_[i]));
      }
    }
    token.k.add_grad(op_.map, in_.k, row, by_k, by_k_size, to_.k);
  }

  W sum_of_most(const typename OracleStates<T>::Token& token, std::size_t c) const {
    W sum = 0;
    for (std::size_t d = 0; d < token.k.share.size(); ++d) {
      sum += token.most[d * width_ + c] * token.k.share[d];
    }
    return sum;
  }

  const bench::AllInputs<T>& in_;
  const OracleDelta<T>& op_;
  const OracleSequence& s_;
  Index head_;
  const OracleStates<T>& states_;
  const View<D>& d_out_;
  ExpectedGrads<T>& to_;
  std::size_t width_;     // Dv
  Vector by_state_;       // [D, Dv]
  Vector most_;           // [D, Dv] running maximum of its magnitude
  Vector by_error_size_;  // [Dv] that of the gradient by the update
};

}  // namespace detail

/// The gradients of sum d_out out. \param d_out [B, Hq, Nq, Dv], of T or wider
template <class T, class D>
ExpectedGrads<T> delta_grad_oracle(const bench::AllInputs<T>& in, const OracleDelta<T>& op,
                                   const View<D>& d_out) {
  ExpectedGrads<T> grads{zero_reference<T>(in.q.shape()), zero_reference<T>(in.k.shape()),
                         zero_reference<T>(in.v.shape())};
  grads.beta = zero_reference<T>(in.beta.shape());
  detail::for_each_delta_head(
      in, op, [&](const auto& s, Index g, const auto& states, const auto& rows) {
        detail::DeltaSweep<T, D>(in, op, s, g, states, d_out, grads).run(rows);
      });
  for (Reference<T>* x : {&grads.q, &grads.k, &grads.v, &grads.beta}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
