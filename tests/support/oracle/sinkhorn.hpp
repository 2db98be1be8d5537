// SPDX-License-Identifier: MIT
/// \file
/// Sinkhorn attention as MATHS.md, section 7 writes it (Tay et al. 2020), and its gradients: by
/// plain loops in float64 (long double for double inputs). Gauges: those of softmax.hpp, of the
/// sums that sorted blocks are, whose weights weigh 1 + the largest |R| and a step of rounding for
/// each iteration more. Held to central differences by tests/attention/sinkhorn_test.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/sinkhorn.hpp"
#include "support/oracle/softmax_grad.hpp"

namespace fovea_test {

/// The expected results of Sinkhorn attention and its backward pass.
template <class T>
struct ExpectedSinkhorn {
  Reference<T> out, lse;
  Reference<T> q, k, v, sorting;
};

/// A key head of a batch entry.
template <class T>
class OracleSort {
 public:
  using W = Wide<T>;
  using Square = std::vector<std::vector<W>>;

  OracleSort(const fovea::SinkhornInputs<T>& in, const fovea::SinkhornOptions& options, Index b,
             Index h)
      : in_(in), b_(b), h_(h), size_(options.block) {
    const Index rows = in.key_lengths.empty() ? in.q.rows() : in.key_lengths[as_size(b)];
    blocks_ = rows / size_;
    Square logs(as_size(blocks_), std::vector<W>(as_size(blocks_)));
    W largest = 0;
    for (Index u = 0; u < blocks_; ++u) {
      for (Index w = 0; w < blocks_; ++w) {
        logs[as_size(u)][as_size(w)] = in.sorting(b, h, u, w);
        largest = std::max(largest, std::abs(W{in.sorting(b, h, u, w)}));
      }
    }
    for (Index step = 0; step < options.iterations; ++step) {
      for (const bool by_rows : {true, false}) {
        normalise(logs, by_rows);
        steps_.push_back(logs);
      }
    }
    weights_ = logs;
    for (std::vector<W>& row : weights_) {
      for (W& x : row) x = std::exp(x);
    }
    // exp takes the absolute error of its argument as a relative one.
    condition_ = 1 + largest + static_cast<W>(2 * options.iterations);
  }

  Index rows() const { return blocks_ * size_; }
  W condition() const { return condition_; }
  W weight(Index u, Index w) const { return weights_[as_size(u)][as_size(w)]; }
  Index blocks() const { return blocks_; }

  /// Row t of block u of a sorted tensor, and the sum of the magnitudes.
  detail::Sum<T> sorted(const View<const T>& x, Index u, Index t, Index c) const {
    detail::Sum<T> sum;
    for (Index w = 0; w < blocks_; ++w) sum.add(weight(u, w) * W{x(b_, h_, w * size_ + t, c)});
    return sum;
  }

  /// The gradient of R from that of the weights.
  Square logits_gradient(Square d) const {
    for (std::size_t u = 0; u < d.size(); ++u) {
      for (std::size_t w = 0; w < d.size(); ++w) d[u][w] *= weights_[u][w];
    }
    return through_steps(d, false);
  }
  /// Its gauge, from that of the gradient of the weights.
  Square logits_gauge(Square d) const {
    for (std::size_t u = 0; u < d.size(); ++u) {
      for (std::size_t w = 0; w < d.size(); ++w) d[u][w] *= weights_[u][w];
    }
    return through_steps(d, true);
  }

 private:
  /// Calls f(line of places (u, w)) for every row or column.
  template <class F>
  static void for_each_line(std::size_t n, bool by_rows, const F& f) {
    for (std::size_t a = 0; a < n; ++a) {
      std::vector<std::pair<std::size_t, std::size_t>> line;
      for (std::size_t c = 0; c < n; ++c)
        line.push_back(by_rows ? std::pair{a, c} : std::pair{c, a});
      f(line);
    }
  }
  static void normalise(Square& logs, bool by_rows) {
    for_each_line(logs.size(), by_rows, [&](const auto& line) {
      W most = -std::numeric_limits<W>::infinity();
      for (const auto& [u, w] : line) most = std::max(most, logs[u][w]);
      W sum = 0;
      for (const auto& [u, w] : line) sum += std::exp(logs[u][w] - most);
      for (const auto& [u, w] : line) logs[u][w] -= most + std::log(sum);
    });
  }
  Square through_steps(Square d, bool sizes) const {
    for (std::size_t step = steps_.size(); step-- > 0;) {
      for_each_line(d.size(), step % 2 == 0, [&](const auto& line) {
        W sum = 0;
        for (const auto& [u, w] : line) sum += d[u][w];
        for (const auto& [u, w] : line) {
          const W part = std::exp(steps_[step][u][w]) * sum;
          d[u][w] += sizes ? part : -part;
        }
      });
    }
    return d;
  }

  const fovea::SinkhornInputs<T>& in_;
  Index b_;
  Index h_;
  Index size_;
  Index blocks_ = 0;
  std::vector<Square> steps_;  // after rows, columns, rows, ...
  Square weights_;
  W condition_ = 1;
};

namespace detail {

/// The keys and values that block u attends to: 2 b rows of sums.
template <class T>
struct SortedSources {
  std::vector<std::vector<Sum<T>>> k, v;
};

template <class T>
SortedSources<T> sorted_sources(const fovea::SinkhornInputs<T>& in, const OracleSort<T>& sort,
                                Index block, Index b, Index h, Index u) {
  SortedSources<T> made;
  for (Index n = 0; n < 2 * block; ++n) {
    const auto row = [&](const View<const T>& x) {
      std::vector<Sum<T>> sums;
      for (Index c = 0; c < x.width(); ++c) {
        Sum<T> sum;
        if (n < block) {
          sum = sort.sorted(x, u, n, c);
          sum.magnitude *= sort.condition();
        } else {
          sum.add(x(b, h, u * block + n - block, c));
        }
        sums.push_back(sum);
      }
      return sums;
    };
    made.k.push_back(row(in.k));
    made.v.push_back(row(in.v));
  }
  return made;
}

}  // namespace detail

/// Output and gradients of sum d_out out.
template <class T, class D>
ExpectedSinkhorn<T> sinkhorn_oracle(const fovea::SinkhornInputs<T>& in,
                                    const fovea::SinkhornOptions& options, const View<D>& d_out) {
  using W = Wide<T>;
  const Index block = options.block;
  const Index width = in.q.width();
  const Index value_width = in.v.width();
  const W scale =
      options.scale ? W{*options.scale} : 1 / std::sqrt(width == 0 ? 1 : static_cast<W>(width));
  const Shape rows = {in.q.batch(), in.q.heads(), in.q.rows(), 1};
  ExpectedSinkhorn<T> to{zero_reference<T>({rows[0], rows[1], rows[2], value_width}),
                         zero_reference<T>(rows),
                         zero_reference<T>(in.q.shape()),
                         zero_reference<T>(in.k.shape()),
                         zero_reference<T>(in.v.shape()),
                         zero_reference<T>(in.sorting.shape())};
  std::fill(to.lse.value.begin(), to.lse.value.end(), -std::numeric_limits<W>::infinity());
  for_each_index({in.k.batch(), in.k.heads(), 1, 1}, [&](Index b, Index kh, Index, Index) {
    const OracleSort<T> sort(in, options, b, kh);
    typename OracleSort<T>::Square d_weights(as_size(sort.blocks()),
                                             std::vector<W>(as_size(sort.blocks())));
    auto d_sizes = d_weights;
    const Index group = in.q.heads() / in.k.heads();
    for (Index u = 0; u < sort.blocks(); ++u) {
      const detail::SortedSources<T> source = detail::sorted_sources(in, sort, block, b, kh, u);
      for (Index i = u * block; i < (u + 1) * block; ++i) {
        for (Index h = kh * group; h < (kh + 1) * group; ++h) {
          std::vector<W> p;
          W largest = 0;
          W most = -std::numeric_limits<W>::infinity();
          for (const auto& k : source.k) {
            W s = 0;
            W reach = 0;
            for (Index d = 0; d < width; ++d) {
              s += scale * W{in.q(b, h, i, d)} * k[as_size(d)].value;
              reach += std::abs(scale * W{in.q(b, h, i, d)}) * k[as_size(d)].magnitude;
            }
            p.push_back(s);
            largest = std::max(largest, reach);
            most = std::max(most, s);
          }
          W sum = 0;
          for (const W s : p) sum += std::exp(s - most);
          for (W& x : p) x = std::exp(x - most) / sum;
          const W lse = most + std::log(sum);
          const std::size_t at = place_of(rows, b, h, i, 0);
          to.lse.value[at] = lse;
          to.lse.gauge[at] = 1 + largest + std::abs(lse);
          const W condition = 1 + largest;
          std::vector<detail::Sum<T>> products;
          detail::Sum<T> delta;
          for (std::size_t n = 0; n < p.size(); ++n) {
            detail::Sum<T> product;
            for (Index c = 0; c < value_width; ++c) {
              const auto& v = source.v[n][as_size(c)];
              const W d = d_out(b, h, i, c);
              detail::add(to.out, {b, h, i, c}, p[n] * v.value,
                          (p[n] + kFaint<T>)*v.magnitude * condition);
              product.value += d * v.value;
              product.magnitude += std::abs(d) * v.magnitude;
            }
            products.push_back(product);
            delta.value += p[n] * product.value;
            delta.magnitude += (p[n] + kFaint<T>)*product.magnitude;
          }
          for (std::size_t n = 0; n < p.size(); ++n) {
            const W size = (p[n] + kFaint<T>)*condition;
            const W ds = scale * p[n] * (products[n].value - delta.value);
            const W ds_size = std::abs(scale) * size * (products[n].magnitude + delta.magnitude);
            const auto place = static_cast<Index>(n);
            // Propagates the gradient of row n of the 2 b rows: to a row of the own block, or of
            // the blocks of the sum.
            const auto flow = [&](Reference<T>& grad, const View<const T>& x, Index c, W value,
                                  W gauge) {
              if (place >= block) {
                detail::add(grad, {b, kh, u * block + place - block, c}, value, gauge);
                return;
              }
              for (Index w = 0; w < sort.blocks(); ++w) {
                const W weight = sort.weight(u, w);
                const W own = x(b, kh, w * block + place, c);
                detail::add(grad, {b, kh, w * block + place, c}, weight * value,
                            weight * gauge * sort.condition());
                d_weights[as_size(u)][as_size(w)] += value * own;
                d_sizes[as_size(u)][as_size(w)] += gauge * std::abs(own) * sort.condition();
              }
            };
            for (Index d = 0; d < width; ++d) {
              const W q = in.q(b, h, i, d);
              const auto& k = source.k[n][as_size(d)];
              detail::add(to.q, {b, h, i, d}, ds * k.value, ds_size * k.magnitude);
              flow(to.k, in.k, d, ds * q, ds_size * std::abs(q));
            }
            for (Index c = 0; c < value_width; ++c) {
              const W d = d_out(b, h, i, c);
              flow(to.v, in.v, c, p[n] * d, size * std::abs(d));
            }
          }
        }
      }
    }
    const auto d_logits = sort.logits_gradient(d_weights);
    const auto sizes = sort.logits_gauge(d_sizes);
    for (Index u = 0; u < sort.blocks(); ++u) {
      for (Index w = 0; w < sort.blocks(); ++w) {
        detail::add(to.sorting, {b, kh, u, w}, d_logits[as_size(u)][as_size(w)],
                    sizes[as_size(u)][as_size(w)]);
      }
    }
  });
  for (Reference<T>* x : {&to.q, &to.k, &to.sorting}) detail::drop_noise(*x);
  return to;
}

}  // namespace fovea_test
