// SPDX-License-Identifier: MIT
/// \file
/// The three forms of the Synthesizer as MATHS.md, section 7 writes them, forward and backward, by
/// plain loops. Gauges are those of softmax attention (tests/README.md, "How results are
/// judged"), where a logit is as large as the magnitudes that it is computed from.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "fovea/attention/synthesizer/tensors.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// A number, and the sum of the magnitudes that it was computed from.
template <class T>
using Sized = detail::Sum<T>;

/// The place of a tensor of weights that sequence b reads.
template <class U>
Index weight_of(const View<U>& x, Index b) {
  return x.batch() == 1 ? 0 : b;
}

/// Logits [B, H, N, N].
template <class T>
struct OracleLogits {
  Shape shape;
  std::vector<Sized<T>> at;
  /// Whether -infinity hides a pair, as a given weight or bias may be; a product is a number.
  bool may_hide = false;

  explicit OracleLogits(const Shape& s) : shape(s), at(as_size(size_of(s))) {}
  Sized<T>& operator()(Index b, Index h, Index i, Index j) {
    return at[place_of(shape, b, h, i, j)];
  }
  const Sized<T>& operator()(Index b, Index h, Index i, Index j) const {
    return at[place_of(shape, b, h, i, j)];
  }
};

template <class T>
OracleLogits<T> oracle_logits(const fovea::RandomSynthesizerInputs<T>& in) {
  OracleLogits<T> made({in.v.batch(), in.r.heads(), in.v.rows(), in.v.rows()});
  made.may_hide = true;
  for_each_index(made.shape, [&](Index b, Index h, Index i, Index j) {
    made(b, h, i, j).add(Wide<T>{in.r(weight_of(in.r, b), h, i, j)});
  });
  return made;
}

template <class T>
OracleLogits<T> oracle_logits(const fovea::FactorisedSynthesizerInputs<T>& in) {
  OracleLogits<T> made({in.v.batch(), in.r1.heads(), in.v.rows(), in.v.rows()});
  for_each_index(made.shape, [&](Index b, Index h, Index i, Index j) {
    const Index key_head = h / (in.r1.heads() / in.r2.heads());
    for (Index c = 0; c < in.r1.width(); ++c) {
      made(b, h, i, j)
          .add(Wide<T>{in.r1(weight_of(in.r1, b), h, i, c)} *
               Wide<T>{in.r2(weight_of(in.r2, b), key_head, j, c)});
    }
  });
  return made;
}

/// x W1 + b1, before relu: [B, H, N, M].
template <class T>
OracleLogits<T> oracle_hidden(const fovea::DenseSynthesizerInputs<T>& in) {
  OracleLogits<T> made({in.v.batch(), in.w1.heads(), in.v.rows(), in.w1.width()});
  for_each_index(made.shape, [&](Index b, Index h, Index i, Index m) {
    const Index of = weight_of(in.w1, b);
    if (!in.b1.empty()) made(b, h, i, m).add(Wide<T>{in.b1(of, h, 0, m)});
    for (Index d = 0; d < in.x.width(); ++d) {
      made(b, h, i, m)
          .add(Wide<T>{in.x(b, in.x.heads() == 1 ? 0 : h, i, d)} * Wide<T>{in.w1(of, h, d, m)});
    }
  });
  return made;
}

template <class T>
OracleLogits<T> oracle_logits(const fovea::DenseSynthesizerInputs<T>& in) {
  using W = Wide<T>;
  const OracleLogits<T> hidden = oracle_hidden(in);
  OracleLogits<T> made({in.v.batch(), in.w1.heads(), in.v.rows(), in.v.rows()});
  made.may_hide = true;
  for_each_index(made.shape, [&](Index b, Index h, Index i, Index j) {
    const Index key_head = h / (in.w1.heads() / in.w2.heads());
    const Index of = weight_of(in.w2, b);
    if (!in.b2.empty()) made(b, h, i, j).add(W{in.b2(of, key_head, 0, j)});
    for (Index m = 0; m < in.w1.width(); ++m) {
      const W weight = in.w2(of, key_head, m, j);
      const Sized<T>& before = hidden(b, h, i, m);
      Sized<T>& to = made(b, h, i, j);
      // A NaN is not below 0.
      to.value += (before.value < 0 ? 0 : before.value) * weight;
      to.magnitude += before.magnitude * std::abs(weight);
    }
  });
  return made;
}

/// The weights of one row over its visible keys.
template <class T>
struct SynthesizerRow {
  std::vector<Index> keys;
  std::vector<Wide<T>> p;
  Wide<T> lse = -std::numeric_limits<Wide<T>>::infinity();
  Wide<T> largest = 0;  // B
};

template <class T>
SynthesizerRow<T> synthesizer_row(const OracleLogits<T>& logits, Index b, Index h, Index i,
                                  fovea::IndexSpan lengths, bool causal) {
  using W = Wide<T>;
  constexpr W infinity = std::numeric_limits<W>::infinity();
  SynthesizerRow<T> row;
  W most = -infinity;
  for (Index j = 0; j < logits.shape[3]; ++j) {
    const bool is_visible = (lengths.empty() || j < lengths[as_size(b)]) && (!causal || j <= i);
    const Sized<T>& s = logits(b, h, i, j);
    if (!is_visible || (logits.may_hide && s.value == -infinity)) continue;
    row.keys.push_back(j);
    row.largest = std::max(row.largest, s.magnitude);
    most = std::isnan(s.value) ? s.value : std::max(most, s.value);  // std::max(NaN, x) is NaN
  }
  W sum = 0;
  for (const Index j : row.keys) {
    row.p.push_back(std::exp(logits(b, h, i, j).value - most));
    sum += row.p.back();
  }
  for (W& p : row.p) p /= sum;
  if (most != -infinity) row.lse = most + std::log(sum);
  return row;
}

/// The output and lse.
template <class T, class I>
Expected<T> synthesizer_oracle(const I& in, bool causal) {
  using W = Wide<T>;
  const OracleLogits<T> logits = oracle_logits(in);
  const auto [batch, heads, rows, keys] = logits.shape;
  Expected<T> made{zero_reference<T>({batch, heads, rows, in.v.width()}),
                   zero_reference<T>({batch, heads, rows, 1})};
  for_each_index({batch, heads, rows, 1}, [&](Index b, Index h, Index i, Index) {
    const auto row = synthesizer_row(logits, b, h, i, in.key_lengths, causal);
    const std::size_t at = place_of(made.lse.shape, b, h, i, 0);
    made.lse.value[at] = row.lse;
    made.lse.gauge[at] = 1 + row.largest + std::abs(row.lse);
    const Index value_head = h / (logits.shape[1] / in.v.heads());
    for (Index c = 0; c < in.v.width(); ++c) {
      Sized<T> sum;
      for (std::size_t n = 0; n < row.keys.size(); ++n) {
        sum.add(row.p[n] * W{in.v(b, value_head, row.keys[n], c)});
      }
      const std::size_t element = at * as_size(in.v.width()) + as_size(c);
      made.out.value[element] = sum.value;
      made.out.gauge[element] = sum.magnitude * (1 + row.largest);
    }
  });
  return made;
}

/// The gradients of the logits and of v. Those of logits have as gauge what they may be off by.
template <class T>
struct SynthesizerBackward {
  OracleLogits<T> d_logits;
  Reference<T> v;
};

template <class T, class I, class D>
SynthesizerBackward<T> synthesizer_backward(const I& in, bool causal, const View<D>& d_out) {
  using W = Wide<T>;
  const OracleLogits<T> logits = oracle_logits(in);
  SynthesizerBackward<T> made{OracleLogits<T>(logits.shape), zero_reference<T>(in.v.shape())};
  const auto [batch, heads, rows, keys] = logits.shape;
  for_each_index({batch, heads, rows, 1}, [&](Index b, Index h, Index i, Index) {
    const auto row = synthesizer_row(logits, b, h, i, in.key_lengths, causal);
    const Index value_head = h / (logits.shape[1] / in.v.heads());
    const W condition = 1 + row.largest;
    std::vector<Sized<T>> dp(row.keys.size());
    Sized<T> delta;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      for (Index c = 0; c < in.v.width(); ++c) {
        const W incoming = d_out(b, h, i, c);
        dp[n].add(incoming * W{in.v(b, value_head, row.keys[n], c)});
        detail::add(made.v, {b, value_head, row.keys[n], c}, row.p[n] * incoming,
                    row.p[n] * std::abs(incoming) * condition);
      }
      delta.value += row.p[n] * dp[n].value;
      delta.magnitude += row.p[n] * dp[n].magnitude;
    }
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      Sized<T>& to = made.d_logits(b, h, i, row.keys[n]);
      to.value = row.p[n] * (dp[n].value - delta.value);
      to.magnitude = row.p[n] * (dp[n].magnitude + delta.magnitude) * condition;
    }
  });
  return made;
}

/// The gradients of the random form.
template <class T>
struct RandomGrads {
  Reference<T> r, v;
};
template <class T, class D>
RandomGrads<T> synthesizer_grads(const fovea::RandomSynthesizerInputs<T>& in, bool causal,
                                 const View<D>& d_out) {
  const auto back = synthesizer_backward<T>(in, causal, d_out);
  RandomGrads<T> made{zero_reference<T>(in.r.shape()), back.v};
  for_each_index(back.d_logits.shape, [&](Index b, Index h, Index i, Index j) {
    const Sized<T>& ds = back.d_logits(b, h, i, j);
    detail::add(made.r, {weight_of(in.r, b), h, i, j}, ds.value, ds.magnitude);
  });
  return made;
}

/// The gradients of the factorised form.
template <class T>
struct FactorisedGrads {
  Reference<T> r1, r2, v;
};
template <class T, class D>
FactorisedGrads<T> synthesizer_grads(const fovea::FactorisedSynthesizerInputs<T>& in, bool causal,
                                     const View<D>& d_out) {
  using W = Wide<T>;
  const auto back = synthesizer_backward<T>(in, causal, d_out);
  FactorisedGrads<T> made{zero_reference<T>(in.r1.shape()), zero_reference<T>(in.r2.shape()),
                          back.v};
  for_each_index(back.d_logits.shape, [&](Index b, Index h, Index i, Index j) {
    const Sized<T>& ds = back.d_logits(b, h, i, j);
    if (ds.magnitude == 0) return;
    const Index key_head = h / (in.r1.heads() / in.r2.heads());
    const Index of1 = weight_of(in.r1, b);
    const Index of2 = weight_of(in.r2, b);
    for (Index c = 0; c < in.r1.width(); ++c) {
      const W first = in.r1(of1, h, i, c);
      const W second = in.r2(of2, key_head, j, c);
      detail::add(made.r1, {of1, h, i, c}, ds.value * second, ds.magnitude * std::abs(second));
      detail::add(made.r2, {of2, key_head, j, c}, ds.value * first, ds.magnitude * std::abs(first));
    }
  });
  return made;
}

/// The gradients of the dense form.
template <class T>
struct DenseGrads {
  Reference<T> x, w1, b1, w2, b2, v;
};
template <class T, class D>
DenseGrads<T> synthesizer_grads(const fovea::DenseSynthesizerInputs<T>& in, bool causal,
                                const View<D>& d_out) {
  using W = Wide<T>;
  const auto back = synthesizer_backward<T>(in, causal, d_out);
  const OracleLogits<T> hidden = oracle_hidden(in);
  DenseGrads<T> made{zero_reference<T>(in.x.shape()),  zero_reference<T>(in.w1.shape()),
                     zero_reference<T>(in.b1.shape()), zero_reference<T>(in.w2.shape()),
                     zero_reference<T>(in.b2.shape()), back.v};
  OracleLogits<T> d_hidden(hidden.shape);
  for_each_index(back.d_logits.shape, [&](Index b, Index h, Index i, Index j) {
    const Sized<T>& ds = back.d_logits(b, h, i, j);
    if (ds.magnitude == 0) return;
    const Index key_head = h / (in.w1.heads() / in.w2.heads());
    const Index of = weight_of(in.w2, b);
    if (!in.b2.empty()) detail::add(made.b2, {of, key_head, 0, j}, ds.value, ds.magnitude);
    for (Index m = 0; m < in.w1.width(); ++m) {
      const Sized<T>& before = hidden(b, h, i, m);
      const W weight = in.w2(of, key_head, m, j);
      detail::add(made.w2, {of, key_head, m, j}, ds.value * std::max<W>(0, before.value),
                  ds.magnitude * before.magnitude);
      if (!(before.value > 0)) continue;
      d_hidden(b, h, i, m).value += ds.value * weight;
      d_hidden(b, h, i, m).magnitude += ds.magnitude * std::abs(weight);
    }
  });
  for_each_index(hidden.shape, [&](Index b, Index h, Index i, Index m) {
    const Sized<T>& dh = d_hidden(b, h, i, m);
    const Index of = weight_of(in.w1, b);
    const Index token_head = in.x.heads() == 1 ? 0 : h;
    if (!in.b1.empty()) detail::add(made.b1, {of, h, 0, m}, dh.value, dh.magnitude);
    for (Index d = 0; d < in.x.width(); ++d) {
      const W token = in.x(b, token_head, i, d);
      const W weight = in.w1(of, h, d, m);
      detail::add(made.x, {b, token_head, i, d}, dh.value * weight,
                  dh.magnitude * std::abs(weight));
      detail::add(made.w1, {of, h, d, m}, dh.value * token, dh.magnitude * std::abs(token));
    }
  });
  return made;
}

}  // namespace fovea_test
