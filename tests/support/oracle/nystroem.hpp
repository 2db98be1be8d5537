// SPDX-License-Identifier: MIT
/// \file
/// Nystroem attention as defined in MATHS.md, section 7, by plain loops, for numbers or for dual
/// numbers, whose second part is a derivative. The effect of rounding is estimated by perturbation:
/// the inputs and each intermediate matrix are changed by a roundoff, and so, separately, are their
/// derivatives; the largest change of a result is its gauge. (Without perturbed derivatives,
/// gradients that cancel seemed to be exact.)
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fovea/attention/nystroem.hpp"
#include "support/fill.hpp"
#include "support/oracle/softmax.hpp"

namespace fovea_test {

/// A number and its derivative.
template <class W>
struct Dual {
  W value = 0;
  W slope = 0;

  Dual() = default;
  Dual(W x) : value(x) {}  // NOLINT: a constant
  Dual(W x, W d) : value(x), slope(d) {}

  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.slope * b.value + a.value * b.slope};
  }
  friend Dual operator/(Dual a, Dual b) {
    return {a.value / b.value, (a.slope * b.value - a.value * b.slope) / (b.value * b.value)};
  }
  friend bool operator>(Dual a, Dual b) { return a.value > b.value; }
};
template <class W>
Dual<W> exp(Dual<W> x) {
  return {std::exp(x.value), x.slope * std::exp(x.value)};
}

/// A matrix of the oracle.
template <class S>
struct OracleMatrix {
  Index rows = 0;
  Index columns = 0;
  std::vector<S> at;

  OracleMatrix() = default;
  OracleMatrix(Index r, Index c) : rows(r), columns(c), at(as_size(r * c), S(0)) {}
  S& operator()(Index i, Index j) { return at[as_size(i * columns + j)]; }
  const S& operator()(Index i, Index j) const { return at[as_size(i * columns + j)]; }
};

template <class S>
OracleMatrix<S> product(const OracleMatrix<S>& a, const OracleMatrix<S>& b) {
  OracleMatrix<S> to(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index k = 0; k < a.columns; ++k) {
      for (Index j = 0; j < b.columns; ++j) to(i, j) = to(i, j) + a(i, k) * b(k, j);
    }
  }
  return to;
}

/// The effect of rounding is relative to a number.
template <class W>
W slope_size(W /*x*/) {
  return 0;
}
/// Of a derivative, too.
template <class W>
W slope_size(const Dual<W>& x) {
  return std::abs(x.slope);
}
template <class W>
W value_of(W x) {
  return x;
}
template <class W>
W value_of(const Dual<W>& x) {
  return x.value;
}

/// softmax(scale a b^T)
/// \param change called as change(weights, sizes of what their derivatives are the differences of):
/// the derivative of a weight p is p (s - sum p s) for derivatives s of logits, which is far
/// smaller than both terms where a row has nearly one weight alone
template <class S, class W, class F>
OracleMatrix<S> softmax_of(const OracleMatrix<S>& a, const OracleMatrix<S>& b, W scale,
                           const F& change) {
  using std::exp;
  OracleMatrix<S> to(a.rows, b.rows);
  std::vector<W> sizes(to.at.size());
  for (Index i = 0; i < a.rows; ++i) {
    S most = S(0);
    for (Index j = 0; j < b.rows; ++j) {
      for (Index c = 0; c < a.columns; ++c) to(i, j) = to(i, j) + a(i, c) * b(j, c);
      to(i, j) = to(i, j) * S(scale);
      sizes[as_size(i * b.rows + j)] = slope_size(to(i, j));
      if (j == 0 || to(i, j) > most) most = to(i, j);
    }
    S sum = S(0);
    for (Index j = 0; j < b.rows; ++j) {
      to(i, j) = exp(to(i, j) - most);
      sum = sum + to(i, j);
    }
    W mean = 0;
    for (Index j = 0; j < b.rows; ++j) {
      to(i, j) = to(i, j) / sum;
      mean += value_of(to(i, j)) * sizes[as_size(i * b.rows + j)];
    }
    for (Index j = 0; j < b.rows; ++j) {
      W& size = sizes[as_size(i * b.rows + j)];
      size = value_of(to(i, j)) * (size + mean);
    }
  }
  change(to, sizes);
  return to;
}

template <class S>
OracleMatrix<S> landmarks_of(const OracleMatrix<S>& x, Index m) {
  OracleMatrix<S> to(m, x.columns);
  const Index segment = x.rows / m;
  for (Index i = 0; i < m * segment; ++i) {
    for (Index c = 0; c < x.columns; ++c) to(i / segment, c) = to(i / segment, c) + x(i, c);
  }
  for (S& element : to.at) element = element / S(static_cast<double>(std::max<Index>(1, segment)));
  return to;
}

/// The largest sum of a column.
template <class S>
S column_norm(const OracleMatrix<S>& a) {
  S most = S(0);
  for (Index j = 0; j < a.columns; ++j) {
    S sum = S(0);
    for (Index i = 0; i < a.rows; ++i) sum = sum + a(i, j);
    if (sum > most) most = sum;
  }
  return most;
}

template <class S>
OracleMatrix<S> transposed(const OracleMatrix<S>& a) {
  OracleMatrix<S> to(a.columns, a.rows);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index j = 0; j < a.columns; ++j) to(j, i) = a(i, j);
  }
  return to;
}

/// Calls change(x, sizes of what its derivatives are relative to) and returns x.
template <class W, class S, class F>
OracleMatrix<S> rounded_by(const F& change, OracleMatrix<S> x) {
  std::vector<W> sizes;
  for (const S& element : x.at) sizes.push_back(slope_size(element));
  change(x, sizes);
  return x;
}

/// The approximation of the inverse of a matrix by that many iterations from a^T / norm.
template <class W, class S, class F>
OracleMatrix<S> iterated_inverse(const OracleMatrix<S>& a, S norm, Index iterations,
                                 const F& change) {
  const auto rounded = [&](OracleMatrix<S> x) { return rounded_by<W>(change, std::move(x)); };
  OracleMatrix<S> z = transposed(a);
  for (S& element : z.at) element = element / norm;
  for (Index step = 0; step < iterations; ++step) {
    const auto minus = [&](double c, OracleMatrix<S> x) {
      for (Index i = 0; i < x.rows; ++i) {
        for (Index j = 0; j < x.columns; ++j) x(i, j) = S(i == j ? W(c) : W(0)) - x(i, j);
      }
      return x;
    };
    const OracleMatrix<S> p = rounded(product(a, z));
    const OracleMatrix<S> inner = rounded(product(p, minus(7, p)));
    z = rounded(product(z, minus(13, rounded(product(p, minus(15, inner))))));
    for (S& element : z.at) element = element / S(4);
  }
  return z;
}

/// The tokens of one head.
template <class S>
struct OracleHead {
  OracleMatrix<S> q, k, v;
};

/// The outputs of all heads of a call.
/// \param change changes a matrix that a head makes, a trial of roundings: called as change(matrix,
/// what the roundings of derivatives are relative to)
template <class S, class W, class F>
std::vector<OracleMatrix<S>> nystroem_heads(const std::vector<OracleHead<S>>& heads,
                                            const fovea::NystroemOptions& options, W scale,
                                            const F& change) {
  const Index m = options.landmarks;
  const auto rounded = [&](OracleMatrix<S> x) { return rounded_by<W>(change, std::move(x)); };
  std::vector<OracleMatrix<S>> kernels;
  std::vector<S> norms;
  for (const OracleHead<S>& head : heads) {
    kernels.push_back(softmax_of(rounded(landmarks_of(head.q, m)), rounded(landmarks_of(head.k, m)),
                                 scale, change));
    const OracleMatrix<S>& a = kernels.back();
    const bool is_own = options.first_scale == fovea::NystroemScale::matrix;
    norms.push_back(is_own ? column_norm(a) * column_norm(transposed(a)) : column_norm(a));
    if (head.k.rows == 0) norms.back() = S(0);
  }
  S largest = S(0);
  for (const S& norm : norms) {
    if (norm > largest) largest = norm;
  }
  std::vector<OracleMatrix<S>> out;
  for (std::size_t n = 0; n < heads.size(); ++n) {
    const OracleHead<S>& head = heads[n];
    if (head.k.rows == 0) {
      out.emplace_back(head.q.rows, head.v.columns);
      continue;
    }
    const OracleMatrix<S>& a = kernels[n];
    const S norm = options.first_scale == fovea::NystroemScale::matrix ? norms[n] : largest;
    const OracleMatrix<S> z = iterated_inverse<W>(a, norm, options.iterations, change);
    const OracleMatrix<S> of_keys =
        softmax_of(rounded(landmarks_of(head.q, m)), head.k, scale, change);
    const OracleMatrix<S> of_queries =
        softmax_of(head.q, rounded(landmarks_of(head.k, m)), scale, change);
    const OracleMatrix<S> w = rounded(product(of_keys, head.v));
    out.push_back(product(of_queries, rounded(product(z, w))));
  }
  return out;
}

/// The expected results of both passes, and for each tensor the largest effect of rounding on any
/// of its elements, as a multiple of the roundoff of T.
template <class T>
struct ExpectedNystroem {
  Reference<T> out, q, k, v;
};

/// A whole call for the oracle.
template <class T>
class NystroemOracle {
 public:
  using W = Wide<T>;

  NystroemOracle(const bench::AllInputs<T>& in, const fovea::NystroemOptions& options,
                 const View<const T>& d_out)
      : in_(in), options_(options), d_out_(d_out) {}

  /// The outputs, and by the derivative of <out, d_out> for every input the gradients.
  ExpectedNystroem<T> expected(bool gradients) const {
    ExpectedNystroem<T> to{zero_reference<T>(d_out_.shape()), zero_reference<T>(in_.q.shape()),
                           zero_reference<T>(in_.k.shape()), zero_reference<T>(in_.v.shape())};
    run(to, gradients, 0);
    std::vector<Reference<T>*> all = {&to.out, &to.q, &to.k, &to.v};
    std::vector<W> changes(4, 0);
    for (std::uint64_t trial = 1; trial <= 3; ++trial) {
      ExpectedNystroem<T> other{zero_reference<T>(d_out_.shape()), zero_reference<T>(in_.q.shape()),
                                zero_reference<T>(in_.k.shape()), zero_reference<T>(in_.v.shape())};
      run(other, gradients, trial);
      const std::vector<const Reference<T>*> changed = {&other.out, &other.q, &other.k, &other.v};
      for (std::size_t n = 0; n < 4; ++n) {
        for (std::size_t i = 0; i < all[n]->value.size(); ++i) {
          changes[n] = std::max(changes[n], std::abs(changed[n]->value[i] - all[n]->value[i]));
        }
      }
    }
    for (std::size_t n = 0; n < 4; ++n) {
      W most = 0;
      for (const W value : all[n]->value) most = std::max(most, std::abs(value));
      for (W& gauge : all[n]->gauge) gauge = most + changes[n] / kRoundoff<T>;
    }
    return to;
  }

 private:
  Index length(Index b, Index rows) const {
    return in_.key_lengths.empty() ? rows : in_.key_lengths[as_size(b)];
  }

  /// One tensor of a head; with a derivative of 1 at one element, if that is of this tensor.
  template <class S>
  OracleMatrix<S> read(const View<const T>& x, Index b, Index h, std::uint64_t trial, int tensor,
                       const Shape* active, int active_tensor) const {
    OracleMatrix<S> to(length(b, x.rows()), x.width());
    for (Index n = 0; n < to.rows; ++n) {
      for (Index c = 0; c < to.columns; ++c) {
        W value = x(b, h, n, c);
        if (trial > 0) {
          const double u = 2 * uniform(hash(trial * 10 + as_size(tensor), b, h, n, c)) - 1;
          value *= 1 + static_cast<W>(u) * kRoundoff<T>;
        }
        if constexpr (std::same_as<S, W>) {
          to(n, c) = value;
        } else {
          const bool is_active = active_tensor == tensor && *active == Shape{b, h, n, c};
          to(n, c) = S(value, is_active ? W(1) : W(0));
        }
      }
    }
    return to;
  }

  template <class S>
  std::vector<OracleMatrix<S>> outputs(std::uint64_t trial, const Shape* active,
                                       int active_tensor) const {
    std::vector<OracleHead<S>> heads;
    const Index group = in_.q.heads() / std::max<Index>(1, in_.k.heads());
    for (Index b = 0; b < in_.q.batch(); ++b) {
      for (Index h = 0; h < in_.q.heads(); ++h) {
        heads.push_back({read<S>(in_.q, b, h, trial, 0, active, active_tensor),
                         read<S>(in_.k, b, h / group, trial, 1, active, active_tensor),
                         read<S>(in_.v, b, h / group, trial, 2, active, active_tensor)});
      }
    }
    const W width = static_cast<W>(std::max<Index>(1, in_.q.width()));
    const W scale = options_.scale ? W{*options_.scale} : 1 / std::sqrt(width);
    Index changes = 0;
    return nystroem_heads<S>(
        heads, options_, scale, [&](OracleMatrix<S>& a, const std::vector<W>& sizes) {
          if (trial == 0) return;
          ++changes;
          for (std::size_t i = 0; i < a.at.size(); ++i) {
            const auto rounding = [&](Index part) {
              const double u =
                  2 * uniform(hash(trial, static_cast<Index>(i), changes, 5, part)) - 1;
              return static_cast<W>(u) * kRoundoff<T>;
            };
            if constexpr (std::same_as<S, W>) {
              a.at[i] *= 1 + rounding(5);
            } else {
              a.at[i].value *= 1 + rounding(5);
              a.at[i].slope += sizes[i] * rounding(6);
            }
          }
        });
  }

  void run(ExpectedNystroem<T>& to, bool gradients, std::uint64_t trial) const {
    const auto out = outputs<W>(trial, nullptr, -1);
    for (Index b = 0; b < in_.q.batch(); ++b) {
      for (Index h = 0; h < in_.q.heads(); ++h) {
        const OracleMatrix<W>& head = out[as_size(b * in_.q.heads() + h)];
        for (Index n = 0; n < head.rows; ++n) {
          for (Index c = 0; c < head.columns; ++c) {
            to.out.value[place_of(to.out.shape, b, h, n, c)] = head(n, c);
          }
        }
      }
    }
    if (!gradients) return;
    Reference<T>* const grads[] = {&to.q, &to.k, &to.v};
    for (int tensor = 0; tensor < 3; ++tensor) {
      Reference<T>& grad = *grads[tensor];
      for_each_index(grad.shape, [&](Index b, Index h, Index n, Index c) {
        const Shape active = {b, h, n, c};
        const auto duals = outputs<Dual<W>>(trial, &active, tensor);
        W sum = 0;
        for (std::size_t head = 0; head < duals.size(); ++head) {
          const auto of = static_cast<Index>(head);
          for (Index i = 0; i < duals[head].rows; ++i) {
            for (Index d = 0; d < duals[head].columns; ++d) {
              sum +=
                  duals[head](i, d).slope * W{d_out_(of / in_.q.heads(), of % in_.q.heads(), i, d)};
            }
          }
        }
        grad.value[place_of(grad.shape, b, h, n, c)] = sum;
      });
    }
  }

  bench::AllInputs<T> in_;
  fovea::NystroemOptions options_;
  View<const T> d_out_;
};

}  // namespace fovea_test
