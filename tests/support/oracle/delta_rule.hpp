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

  OracleShares() = default;
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

/// One key head of one sequence, token by token.
template <class T>
class OracleDeltaHead {
 public:
  using W = Wide<T>;

  /// What a token did, and the state after it.
  struct Token {
    OracleShares<T> k = {};
    W beta = 0;
    std::vector<W> error = {};  // [Dv] v - W k'
    std::vector<W> error_size;  // [Dv] running maximum of |v| + |W k'|
    std::vector<W> state;       // [D, Dv]
    std::vector<W> most;        // [D, Dv] running maximum of |state|
  };

  OracleDeltaHead(const bench::AllInputs<T>& in, const OracleDelta<T>& op, const OracleSequence& s,
                  Index head)
      : in_(in), op_(op), s_(s), head_(head) {}

  /// Before the first token.
  Token none() const {
    const auto width = as_size(in_.v.width());
    const std::vector<W> zeros(as_size(in_.k.width()) * width);
    return {.error_size = std::vector<W>(width), .state = zeros, .most = zeros};
  }
  /// From the token before to token t.
  void advance(Token& token, Index t) const {
    const auto width = as_size(in_.v.width());
    const Index j = s_.first_key + t;
    token.k = {op_.map, in_.k, s_.batch, head_, j};
    token.beta = in_.beta(s_.batch, head_, j, 0);
    token.error.clear();
    for (std::size_t c = 0; c < width; ++c) {
      W read = 0;
      for (std::size_t d = 0; d < token.k.share.size(); ++d) {
        read += token.state[d * width + c] * token.k.share[d];
      }
      const W v = in_.v(s_.batch, head_, j, static_cast<Index>(c));
      token.error.push_back(v - read);
      token.error_size[c] = std::max(token.error_size[c], std::abs(v) + std::abs(read));
    }
    for (std::size_t d = 0; d < token.k.share.size(); ++d) {
      for (std::size_t c = 0; c < width; ++c) {
        W& x = token.state[d * width + c];
        x += token.beta * token.k.share[d] * token.error[c];
        token.most[d * width + c] = std::max(token.most[d * width + c], std::abs(x));
      }
    }
  }

 private:
  const bench::AllInputs<T>& in_;
  const OracleDelta<T>& op_;
  const OracleSequence& s_;
  Index head_;
};

/// A row that sees tokens [0, last].
struct OracleDeltaRow {
  Index query;  // its row of q
  Index last;
};

namespace detail {

/// Calls f(sequence, key head, its tokens, rows): the rows are those of each of its query heads.
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
      f(s, g, OracleDeltaHead<T>(in, op, s, g), rows);
    }
  }
}

}  // namespace detail

/// Calls f(row, the last token that it sees) for rows in the order of these tokens.
template <class T, class F>
void for_each_delta_row(const OracleDeltaHead<T>& head, const std::vector<OracleDeltaRow>& rows,
                        const F& f) {
  auto token = head.none();
  auto row = rows.begin();
  for (Index t = 0; row != rows.end(); ++t) {
    head.advance(token, t);
    for (; row != rows.end() && row->last == t; ++row) f(*row, token);
  }
}

/// The output of a row of query head h.
template <class T>
OracleOut<T> oracle_delta_out(const bench::AllInputs<T>& in, const OracleDelta<T>& op, Index batch,
                              Index h, Index query,
                              const typename OracleDeltaHead<T>::Token& token) {
  const OracleShares<T> q(op.map, in.q, batch, h, query);
  OracleOut<T> out{std::vector<Wide<T>>(token.error_size.size()), token.error_size};
  for (std::size_t c = 0; c < out.value.size(); ++c) {
    for (std::size_t d = 0; d < q.share.size(); ++d) {
      out.value[c] += token.state[d * out.value.size() + c] * q.share[d];
      out.gauge[c] += token.most[d * out.value.size() + c] * q.share[d];
    }
  }
  return out;
}

/// [B, Hq, Nq, Dv].
template <class T>
Reference<T> delta_oracle(const bench::AllInputs<T>& in, const OracleDelta<T>& op) {
  Reference<T> out = zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), in.v.width()});
  const Index group = in.k.heads() == 0 ? 1 : in.q.heads() / in.k.heads();
  detail::for_each_delta_head(
      in, op, [&](const auto& s, Index g, const auto& head, const auto& rows) {
        for_each_delta_row(head, rows, [&](const OracleDeltaRow& row, const auto& token) {
          for (Index h = g * group; h < (g + 1) * group; ++h) {
            const OracleOut<T> one = oracle_delta_out<T>(in, op, s.batch, h, row.query, token);
            std::size_t i = place_of(out.shape, s.batch, h, row.query, 0);
            for (std::size_t c = 0; c < one.value.size(); ++c, ++i) {
              out.value[i] = one.value[c];
              out.gauge[i] = one.gauge[c];
              // Infinities are combined with features that cancel them or are 0, in different
              // orders.
              const bool is_certain = op.map.positive && std::isnan(one.value[c]);
              if (!std::isfinite(one.value[c]) && !is_certain) out.relax(i, Demand::not_finite);
            }
          }
        });
      });
  return out;
}

namespace detail {

/// The reverse sweep over one key head. `by_state` is the gradient by the state after the sweep's
/// current token; matrices are [D, Dv]. Of the states, those between segments of tokens are kept,
/// and those of one segment at a time.
template <class T, class D>
class DeltaSweep {
 public:
  using W = Wide<T>;
  using Vector = std::vector<W>;

  DeltaSweep(const bench::AllInputs<T>& in, const OracleDelta<T>& op, const OracleSequence& s,
             Index g, const OracleDeltaHead<T>& head, const View<D>& d_out, ExpectedGrads<T>& to)
      : in_(in),
        op_(op),
        s_(s),
        head_(g),
        tokens_(head),
        d_out_(d_out),
        to_(to),
        width_(as_size(in.v.width())),
        by_state_(as_size(in.k.width()) * width_),
        most_(by_state_.size()),
        by_error_size_(width_) {}

  void run(const std::vector<OracleDeltaRow>& rows) {
    const Index count = rows.back().last + 1;
    std::vector<Token> starts;
    Token token = tokens_.none();
    for (Index t = 0; t < count; ++t) {
      if (t % kSegment == 0) starts.push_back(token);
      tokens_.advance(token, t);
    }
    auto row = rows.rbegin();
    for (; !starts.empty(); starts.pop_back()) {
      const Index first = (std::ssize(starts) - 1) * kSegment;
      std::vector<Token> tokens = {starts.back()};
      for (Index t = first; t < std::min(count, first + kSegment); ++t) {
        tokens.push_back(tokens.back());
        tokens_.advance(tokens.back(), t);
      }
      for (std::size_t n = tokens.size() - 1; n > 0; --n) {
        const Index t = first + static_cast<Index>(n) - 1;
        for (; row != rows.rend() && row->last == t; ++row) add_rows(row->query, tokens[n]);
        pass_token(t, tokens[n], tokens[n - 1].state);
      }
    }
  }

 private:
  using Token = typename OracleDeltaHead<T>::Token;
  static constexpr Index kSegment = 128;

  void add_rows(Index query, const Token& token) {
    const Index group = in_.q.heads() / in_.k.heads();
    for (Index h = head_ * group; h < (head_ + 1) * group; ++h) add_row(h, query, token);
  }

  void add_row(Index h, Index query, const Token& token) {
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
  void pass_token(Index t, const Token& token, const Vector& before) {
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

  W sum_of_most(const Token& token, std::size_t c) const {
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
  const OracleDeltaHead<T>& tokens_;
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
      in, op, [&](const auto& s, Index g, const auto& head, const auto& rows) {
        detail::DeltaSweep<T, D>(in, op, s, g, head, d_out, grads).run(rows);
      });
  for (Reference<T>* x : {&grads.q, &grads.k, &grads.v, &grads.beta}) detail::drop_noise(*x);
  return grads;
}

}  // namespace fovea_test
