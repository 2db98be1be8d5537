// SPDX-License-Identifier: MIT
/// \file
/// The kernels of the delta rule against loops over tokens, forward and backward, at every level:
/// any sizes, maps and layouts; central differences; and by bits: any division of sequences, v3 and
/// v4, 16-bit storage, and NaN in memory that must not be read.
#include "fovea/kernels/linear/delta_rule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fovea/kernels/linear/table.hpp"
#include "kernels/linear/own_map.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/scratch.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_linear_delta_rule {

using fovea::FeatureMapKind;
using fovea::kDeltaChunk;
using enum fovea::FeatureMapKind;

/// Heads of queries that share a head of keys. Row r is the query at position first + r.
struct Sizes {
  Index heads = 1;
  Index tokens = 70;
  Index rows = 70;
  Index first = 0;
  Index width = 8;
  Index value_width = 8;
  FeatureMapKind map = elu_plus_one;
  bool blended = false;
  Index column = 1;   // stride of all matrices
  double beta = -1;   // of every token; drawn, if negative
  double spread = 1;  // of q and k
  double offset = 0;  // added to them
};

template <class W>
W value(FeatureMapKind kind, W x) {
  if (kind == elu_plus_one) return x < 0 ? std::exp(x) : x + 1;
  if (kind == tanh_plus_one) return 2 / (1 + std::exp(-2 * x));
  if (kind == relu) return std::max<W>(0, x);
  return x * x;  // own
}
template <class W>
W derivative(FeatureMapKind kind, W x) {
  if (kind == elu_plus_one) return x < 0 ? std::exp(x) : W{1};
  if (kind == tanh_plus_one) return 1 / (std::cosh(x) * std::cosh(x));
  if (kind == relu) return x > 0 ? 1 : 0;
  return 2 * x;
}

/// The arguments of a call.
template <class T>
struct Tensors {
  explicit Tensors(const Sizes& s)
      : q({1, s.heads, s.rows, s.width}, layout(s)),
        k({1, 1, s.tokens, s.width}, layout(s)),
        v({1, 1, s.tokens, s.value_width}, layout(s)),
        beta({1, 1, s.tokens, 1}, layout(s)),
        near_field({1, s.heads, s.rows, s.value_width}, layout(s)),
        d_out({1, s.heads, s.rows, s.value_width}, layout(s)) {
    const auto feature = [&s](std::uint64_t seed) -> Fill {
      return [&s, fill = gaussian(seed, s.spread)](Index b, Index h, Index n, Index d) {
        return fill(b, h, n, d) + s.offset;
      };
    };
    q.fill(feature(1));
    k.fill(feature(2));
    v.fill(gaussian(3));
    near_field.fill(gaussian(4));
    d_out.fill(gaussian(5));
    beta.fill([&s](Index, Index, Index n, Index) {
      return s.beta < 0 ? uniform(hash(6, 0, 0, n, 0)) : s.beta;
    });
    for (Index c = 0; c < s.value_width; ++c) {
      near_weight.push_back(static_cast<T>(0.2 + 0.01 * static_cast<double>(c)));
      far_weight.push_back(static_cast<T>(0.9 - 0.01 * static_cast<double>(c)));
    }
  }

  static Layout layout(const Sizes& s) {
    Layout layout;
    layout.innermost = s.column;
    layout.gap = s.column - 1;
    return layout;
  }

  Tensor<T> q, k, v, beta, near_field, d_out;
  std::vector<T> near_weight, far_weight;
};

/// Gradients; values in logical order.
template <class T>
struct Grads {
  std::vector<T> q, k, v, beta;
  std::vector<T> products;  // [heads]
};

template <class T>
class Call {
 public:
  explicit Call(const Sizes& sizes) : s_(sizes), tensors_(s_) {}

  const Tensors<T>& tensors() const { return tensors_; }
  const Sizes& sizes() const { return s_; }

  /// Tokens in steps of `step`, rows read as soon as their last token is there, or once all are.
  std::vector<T> forward(Index step, bool late_rows = false) const {
    const Tensor<T> out({1, s_.heads, s_.rows, s_.value_width}, Tensors<T>::layout(s_));
    const Scratch<T> state(fovea::delta_state_elements<T>(s_.width, s_.value_width));
    const Scratch<T> scratch(fovea::delta_stream_scratch<T>(s_.width, s_.value_width));
    Index row = 0;
    Index begin = 0;
    do {
      const Index end = std::min(begin + step, s_.tokens);
      const Index seeing = late_rows ? row : std::clamp<Index>(end - s_.first, row, s_.rows);
      const Index rows_end = end == s_.tokens ? s_.rows : seeing;
      stream(begin, end, row, rows_end, out, state, scratch);
      row = rows_end;
      begin = end;
    } while (begin < s_.tokens);
    EXPECT_EQ(out.changed_gaps(), 0);
    return out.values();
  }

  /// \param before what the gradients held, and are added to; or null
  Grads<T> backward(const T* before = nullptr) const {
    const Layout layout = Tensors<T>::layout(s_);
    const Tensor<T> d_q({1, s_.heads, s_.rows, s_.width}, layout);
    const Tensor<T> d_k({1, 1, s_.tokens, s_.width}, layout);
    const Tensor<T> d_v({1, 1, s_.tokens, s_.value_width}, layout);
    const Tensor<T> d_beta({1, 1, s_.tokens, 1}, layout);
    if (before != nullptr) {
      for (const Tensor<T>* x : {&d_q, &d_k, &d_v}) x->fill(constant(double{*before}));
    }
    std::vector<T> products(as_size(s_.heads), T{7});
    std::vector<fovea::LinearGradRows<T>> rows;
    const auto& [q, k, v, beta, near_field, d_out, near_weight, far_weight] = tensors_;
    for (Index h = 0; h < s_.heads; ++h) {
      rows.push_back({matrix<const T>(q, h), matrix<const T>(d_out, h),
                      s_.blended ? far_weight.data() : nullptr, matrix<T>(d_q, h),
                      &products[as_size(h)]});
    }
    const Scratch<T> scratch(
        fovea::delta_grad_scratch<T>(s_.tokens, s_.heads, s_.width, s_.value_width));
    fovea::DeltaGradArgs<T> args;
    args.tokens = {matrix<const T>(k), matrix<const T>(v), matrix<T>(d_k), matrix<T>(d_v),
                   s_.tokens};
    args.beta = matrix<const T>(beta);
    args.d_beta = matrix<T>(d_beta);
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.map = map();
    args.rows = rows.data();
    args.heads = s_.heads;
    args.row_count = s_.rows;
    args.first_position = s_.first;
    args.accumulate = before != nullptr;
    args.scratch = scratch.data();
    fovea::LinearGradKernels<T>{}.delta(args);
    for (const Tensor<T>* x : {&d_q, &d_k, &d_v, &d_beta}) EXPECT_EQ(x->changed_gaps(), 0);
    return {d_q.values(), d_k.values(), d_v.values(), d_beta.values(), products};
  }

 private:
  template <class U>
  static fovea::Matrix<U> matrix(const Tensor<T>& x, Index h = 0, Index row = 0) {
    const auto strides = x.view().strides();
    return {x.shape()[2] == 0 ? nullptr : &x(0, h, row, 0), strides[2], strides[3]};
  }

  fovea::FeatureMapArgs<T> map() const { return {s_.map, &square<T>, &twice<T>}; }

  void stream(Index begin, Index end, Index row, Index rows_end, const Tensor<T>& out,
              const Scratch<T>& state, const Scratch<T>& scratch) const {
    std::vector<fovea::LinearRows<T>> rows(as_size(s_.heads));
    const auto& [q, k, v, beta, near_field, d_out, near_weight, far_weight] = tensors_;
    for (Index h = 0; h < s_.heads && row < rows_end; ++h) {
      rows[as_size(h)].q = stored(matrix<const T>(q, h, row));
      rows[as_size(h)].out = output(matrix<T>(out, h, row));
      if (!s_.blended) continue;
      rows[as_size(h)].near_field = matrix<const T>(near_field, h, row);
      rows[as_size(h)].near_weight = near_weight.data();
      rows[as_size(h)].far_weight = far_weight.data();
    }
    fovea::DeltaStreamArgs<T> args;
    if (begin < end) {
      args.k = stored(matrix<const T>(k, 0, begin));
      args.v = stored(matrix<const T>(v, 0, begin));
      args.beta = matrix<const T>(beta, 0, begin);
    }
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.map = map();
    args.length = begin;
    args.tokens = end - begin;
    args.rows = rows.data();
    args.heads = s_.heads;
    args.row_count = rows_end - row;
    args.first_position = s_.first + row;
    args.state = state.data();
    args.scratch = scratch.data();
    fovea::LinearKernels<T>{}.delta_stream(args);
  }

  Sizes s_;
  Tensors<T> tensors_;
};

// ---- token by token -----------------------------------------------------------------------------

/// A matrix of the reference.
template <class W>
struct Rows {
  Rows(Index rows, Index width_) : width(width_), all(as_size(rows * width_)) {}
  W& operator()(Index i, Index c) { return all[as_size(i * width + c)]; }
  const W& operator()(Index i, Index c) const { return all[as_size(i * width + c)]; }
  Index width;
  std::vector<W> all;
};

/// Features divided by their sums.
template <class W>
struct Shares {
  template <class T>
  Shares(const Tensor<T>& x, Index h, FeatureMapKind map)
      : share(x.shape()[2], x.shape()[3]), slope(share), sum(as_size(x.shape()[2])) {
    for (Index i = 0; i < x.shape()[2]; ++i) {
      for (Index d = 0; d < share.width; ++d) {
        share(i, d) = value<W>(map, x(0, h, i, d));
        slope(i, d) = derivative<W>(map, x(0, h, i, d));
        sum[as_size(i)] += share(i, d);
      }
      const W total = sum[as_size(i)];
      for (Index d = 0; d < share.width; ++d) {
        share(i, d) = total == 0 ? 0 : share(i, d) / total;
        slope(i, d) = total == 0 ? 0 : slope(i, d) / total;
      }
    }
  }

  /// Computes the gradient of row i of x from that of the normalised row. Returns the largest
  /// magnitude of its terms.
  W through(Index i, const W* by_share, W* by_x) const {
    W mean = 0;
    W size = 0;
    for (Index d = 0; d < share.width; ++d) {
      mean += share(i, d) * by_share[d];
      size += share(i, d) * std::abs(by_share[d]);
    }
    W most = 0;
    for (Index d = 0; d < share.width; ++d) {
      by_x[d] = slope(i, d) * (by_share[d] - mean);
      most = std::max(most, std::abs(slope(i, d)) * (std::abs(by_share[d]) + size));
    }
    return most;
  }

  Rows<W> share, slope;
  std::vector<W> sum;
};

/// All states, and what follows from them. Each result has one gauge: the largest magnitude of its
/// elements and of what they are the sum of.
template <class T>
class Expected {
 public:
  using W = Wide<T>;

  explicit Expected(const Call<T>& call)
      : s_(call.sizes()), t_(call.tensors()), k_(t_.k, 0, s_.map), states_(1) {
    states_[0].assign(as_size(s_.width * s_.value_width), 0);
    for (Index t = 0; t < s_.tokens; ++t) {
      std::vector<W> state = states_.back();
      for (Index c = 0; c < s_.value_width; ++c) {
        W error = t_.v(0, 0, t, c);
        for (Index d = 0; d < s_.width; ++d) error -= state[place(d, c)] * k_.share(t, d);
        errors_.push_back(error);
        const W update = error * t_.beta(0, 0, t, 0);
        for (Index d = 0; d < s_.width; ++d) state[place(d, c)] += k_.share(t, d) * update;
      }
      states_.push_back(std::move(state));
    }
  }

  Reference<T> forward() const {
    Reference<T> all = none({1, s_.heads, s_.rows, s_.value_width});
    W most = 0;
    for (Index h = 0; h < s_.heads; ++h) {
      const Shares<W> q(t_.q, h, s_.map);
      for (Index r = 0; r < s_.rows; ++r) {
        for (Index c = 0; c < s_.value_width; ++c) {
          const auto i = as_size((h * s_.rows + r) * s_.value_width + c);
          for (Index d = 0; d < s_.width; ++d) {
            all.value[i] += state_of(r)[place(d, c)] * q.share(r, d);
          }
          if (s_.blended) {
            all.value[i] = t_.far_weight[as_size(c)] * all.value[i] +
                           t_.near_weight[as_size(c)] * W{t_.near_field(0, h, r, c)};
          }
          most = std::max(most, std::abs(all.value[i]));
        }
      }
    }
    for (const W error : errors_) most = std::max(most, std::abs(error));
    std::fill(all.gauge.begin(), all.gauge.end(), most);
    return all;
  }

  struct Gradients {
    Reference<T> q, k, v, beta, products;
  };

  Gradients backward() const {
    Gradients to{none(t_.q.shape()), none(t_.k.shape()), none(t_.v.shape()), none(t_.beta.shape()),
                 none({1, 1, 1, s_.heads})};
    std::vector<W> by_state(as_size(s_.width * s_.value_width));
    std::vector<W> by_k(as_size(s_.width));
    for (Index t = s_.tokens; t-- > 0;) {
      for (Index h = 0; h < s_.heads; ++h) add_rows(h, t, by_state, to);
      std::fill(by_k.begin(), by_k.end(), 0);
      const W beta = t_.beta(0, 0, t, 0);
      for (Index c = 0; c < s_.value_width; ++c) {
        const W error = errors_[as_size(t * s_.value_width + c)];
        W by_update = 0;
        for (Index d = 0; d < s_.width; ++d) by_update += by_state[place(d, c)] * k_.share(t, d);
        const W by_error = beta * by_update;
        to.beta.value[as_size(t)] += by_update * error;
        to.v.value[as_size(t * s_.value_width + c)] = by_error;
        for (Index d = 0; d < s_.width; ++d) {
          by_k[as_size(d)] +=
              by_state[place(d, c)] * beta * error - states_[as_size(t)][place(d, c)] * by_error;
          by_state[place(d, c)] -= k_.share(t, d) * by_error;
        }
      }
      raise(to.k, k_.through(t, by_k.data(), to.k.value.data() + t * s_.width));
    }
    for (Reference<T>* x : {&to.q, &to.k, &to.v, &to.beta}) {
      for (const W y : x->value) raise(*x, std::abs(y));
      if (!x->gauge.empty()) std::fill(x->gauge.begin(), x->gauge.end(), x->gauge[0]);
    }
    return to;
  }

  /// sum <far_weight d_out, far> over all heads and rows.
  W loss() const {
    W sum = 0;
    const Gradients all = backward();
    for (const W x : all.products.value) sum += x;
    return sum;
  }

 private:
  std::size_t place(Index d, Index c) const { return as_size(d * s_.value_width + c); }
  static Reference<T> none(const Shape& shape) {
    Reference<T> all;
    all.shape = shape;
    all.value.resize(as_size(size_of(shape)));
    all.gauge.resize(all.value.size());
    return all;
  }
  /// Raises the one gauge.
  static void raise(Reference<T>& x, W size) { x.gauge[0] = std::max(x.gauge[0], size); }
  Index seen_by(Index r) const { return std::clamp<Index>(s_.first + r + 1, 0, s_.tokens); }
  const std::vector<W>& state_of(Index r) const { return states_[as_size(seen_by(r))]; }

  /// The rows that see exactly the tokens up to t.
  void add_rows(Index h, Index t, std::vector<W>& by_state, Gradients& to) const {
    const Shares<W> q(t_.q, h, s_.map);
    std::vector<W> by_q(as_size(s_.width));
    W size = 0;  // of the terms of the product
    for (Index r = 0; r < s_.rows; ++r) {
      if (seen_by(r) != t + 1) continue;
      std::fill(by_q.begin(), by_q.end(), 0);
      for (Index c = 0; c < s_.value_width; ++c) {
        W d_out = t_.d_out(0, h, r, c);
        if (s_.blended) d_out *= t_.far_weight[as_size(c)];
        for (Index d = 0; d < s_.width; ++d) {
          by_q[as_size(d)] += states_[as_size(t + 1)][place(d, c)] * d_out;
          by_state[place(d, c)] += q.share(r, d) * d_out;
        }
      }
      for (Index d = 0; d < s_.width; ++d) {
        const W product = by_q[as_size(d)] * q.share(r, d);
        to.products.value[as_size(h)] += product;
        size += std::abs(product);
      }
      raise(to.q, q.through(r, by_q.data(), to.q.value.data() + (h * s_.rows + r) * s_.width));
    }
    to.products.gauge[as_size(h)] += size;
  }

  const Sizes& s_;
  const Tensors<T>& t_;
  Shares<W> k_;
  std::vector<std::vector<W>> states_;  // [tokens + 1] of [D, Dv]
  std::vector<W> errors_;               // [tokens, Dv]
};

std::string text(const Sizes& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.tokens) + " tokens, " +
         std::to_string(s.rows) + " rows from " + std::to_string(s.first) + ", D " +
         std::to_string(s.width) + ", Dv " + std::to_string(s.value_width) + ", map " +
         std::to_string(static_cast<int>(s.map));
}

template <class T>
class DeltaRule : public testing::Test {
 protected:
  static constexpr double kBound = 16;
  static constexpr double kGradBound = 32;

  static void check(const Sizes& sizes) {
    SCOPED_TRACE(text(sizes));
    const Call<T> call(sizes);
    const Expected<T> expected(call);
    const Reference<T> out = expected.forward();
    const auto grads = expected.backward();
    at_each_level([&] {
      EXPECT_TRUE(within_ratio(call.forward(sizes.tokens), out, kBound));
      const Grads<T> got = call.backward();
      EXPECT_TRUE(within_ratio(got.q, grads.q, kGradBound));
      EXPECT_TRUE(within_ratio(got.k, grads.k, kGradBound));
      EXPECT_TRUE(within_ratio(got.v, grads.v, kGradBound));
      EXPECT_TRUE(within_ratio(got.beta, grads.beta, kGradBound));
      EXPECT_TRUE(within_ratio(got.products, grads.products, kGradBound));
    });
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(DeltaRule, Scalars);

TYPED_TEST(DeltaRule, AnyWidth) {
  for (const Index width : {1, 2, 5, 16, 31, 64, 65, 130}) {
    for (const Index value_width : {1, 3, 17, 64, 80}) {
      this->check({.tokens = 75, .rows = 75, .width = width, .value_width = value_width});
    }
  }
}

TYPED_TEST(DeltaRule, AnyLength) {
  for (Index n = 1; n < 2 * kDeltaChunk + 3; ++n) this->check({.tokens = n, .rows = n});
  this->check({.tokens = 700, .rows = 700});
}

TYPED_TEST(DeltaRule, RowsBeforeAndAfterTheTokens) {
  for (const Index first : {-40, -1, 3, 35, 60}) {
    for (const Index rows : {1, 7, 100}) {
      this->check({.heads = 2, .tokens = 50, .rows = rows, .first = first});
      this->check({.tokens = 64, .rows = rows, .first = first, .blended = true});
    }
  }
}

TYPED_TEST(DeltaRule, Maps) {
  this->check({.heads = 3, .width = 20, .map = tanh_plus_one});
  this->check({.width = 20, .map = relu});
  this->check({.width = 20, .map = own});
}

TYPED_TEST(DeltaRule, ExtremesOfBeta) {
  this->check({.beta = 0});
  this->check({.beta = 1});
}

/// Some rows of features, or all of them, are 0; others are so small that their sum has no inverse.
TYPED_TEST(DeltaRule, FeaturesThatVanish) {
  this->check({.width = 2, .map = relu});
  this->check({.map = relu, .spread = 0.1, .offset = -3});
  this->check({.spread = 0.1, .offset = sizeof(TypeParam) == 4 ? -80 : -700});
}

TYPED_TEST(DeltaRule, NoTokens) {
  for (const bool blended : {false, true}) {
    const Call<TypeParam> call({.heads = 2, .tokens = 0, .rows = 5, .blended = blended});
    const Reference<TypeParam> expected = Expected<TypeParam>(call).forward();
    at_each_level([&] {
      EXPECT_TRUE(within_ratio(call.forward(1), expected, 1));
      const Grads<TypeParam> grads = call.backward();
      EXPECT_TRUE(same_bits(grads.q, std::vector<TypeParam>(grads.q.size())));
      EXPECT_TRUE(same_bits(grads.products, std::vector<TypeParam>(2)));
    });
  }
}

/// One element of an input moved up and down.
template <class T>
void expect_difference(const Sizes& sizes, Tensor<T> Tensors<T>::*which,
                       const std::vector<T>& grads) {
  Call<T> call(sizes);
  const Tensor<T>& x = call.tensors().*which;
  std::size_t i = 0;
  for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
    const T at = x(b, h, n, d);
    const T step = static_cast<T>(0x1p-20);
    x(b, h, n, d) = at + step;
    const auto above = Expected<T>(call).loss();
    x(b, h, n, d) = at - step;
    const auto below = Expected<T>(call).loss();
    x(b, h, n, d) = at;
    const auto slope = static_cast<double>((above - below) / (2 * step));
    EXPECT_NEAR(static_cast<double>(grads[i]), slope, 1e-9) << "element " << i;
    ++i;
  });
}

TEST(DeltaRuleDifferences, Gradients) {
  for (const FeatureMapKind map : {tanh_plus_one, own}) {
    const Sizes sizes = {.heads = 2,
                         .tokens = 5,
                         .rows = 6,
                         .first = -1,
                         .width = 3,
                         .value_width = 2,
                         .map = map,
                         .blended = true};
    const Grads<double> grads = Call<double>(sizes).backward();
    expect_difference(sizes, &Tensors<double>::q, grads.q);
    expect_difference(sizes, &Tensors<double>::k, grads.k);
    expect_difference(sizes, &Tensors<double>::v, grads.v);
    expect_difference(sizes, &Tensors<double>::beta, grads.beta);
  }
}

// ---- by bits ------------------------------------------------------------------------------------

template <class T>
class DeltaRuleBits : public testing::Test {
 protected:
  static const std::vector<Sizes>& cases() {
    static const std::vector<Sizes> all = {
        {.tokens = 100, .rows = 100, .width = 9, .value_width = 5},
        {.heads = 3, .tokens = 100, .rows = 100, .width = 40, .value_width = 64},
        {.tokens = 100, .rows = 130, .first = -10, .map = tanh_plus_one},
        {.tokens = 70, .rows = 20, .first = 50, .width = 70, .blended = true, .column = 2},
        {.tokens = 96, .rows = 100, .width = 130, .value_width = 48, .map = own}};
    return all;
  }

  static void expect_same(const Grads<T>& a, const Grads<T>& b) {
    EXPECT_TRUE(same_bits(a.q, b.q));
    EXPECT_TRUE(same_bits(a.k, b.k));
    EXPECT_TRUE(same_bits(a.v, b.v));
    EXPECT_TRUE(same_bits(a.beta, b.beta));
    EXPECT_TRUE(same_bits(a.products, b.products));
  }
};
TYPED_TEST_SUITE(DeltaRuleBits, Scalars);

TYPED_TEST(DeltaRuleBits, AnyDivisionIntoSteps) {
  at_each_level([&] {
    for (const Sizes& sizes : this->cases()) {
      const Call<TypeParam> call(sizes);
      const auto whole = call.forward(sizes.tokens);
      for (const Index step : {1, 2, 9, 31, 32, 33, 64}) {
        EXPECT_TRUE(same_bits(call.forward(step), whole)) << text(sizes) << ", step " << step;
      }
    }
  });
}

TYPED_TEST(DeltaRuleBits, V3AndV4) {
  if (!has_level(IsaLevel::v4)) GTEST_SKIP() << "no v4";
  for (const Sizes& sizes : this->cases()) {
    const Call<TypeParam> call(sizes);
    const auto out = call.forward(sizes.tokens);
    const auto grads = call.backward();
    const AtLevel at(IsaLevel::v3);
    EXPECT_TRUE(same_bits(call.forward(sizes.tokens), out)) << text(sizes);
    this->expect_same(call.backward(), grads);
  }
}

TYPED_TEST(DeltaRuleBits, Strides) {
  at_each_level([&] {
    for (Sizes sizes : this->cases()) {
      sizes.column = 1;
      const Call<TypeParam> call(sizes);
      sizes.column = 3;
      const Call<TypeParam> apart(sizes);
      EXPECT_TRUE(same_bits(apart.forward(sizes.tokens), call.forward(sizes.tokens)));
      this->expect_same(apart.backward(), call.backward());
    }
  });
}

/// Rows that come after all tokens see what they saw on the way, if they may.
TYPED_TEST(DeltaRuleBits, LateRows) {
  const Sizes sizes = {.heads = 2, .tokens = 64, .rows = 40, .first = 63};
  at_each_level([&] {
    const Call<TypeParam> call(sizes);
    EXPECT_TRUE(same_bits(call.forward(10, true), call.forward(sizes.tokens)));
  });
}

/// Tokens that rows do not see, and rows that do not see tokens, contain NaN.
TYPED_TEST(DeltaRuleBits, NaNBeyond) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const Sizes sizes = {.heads = 2, .tokens = 80, .rows = 80, .width = 9, .value_width = 20};
  const auto width = as_size(sizes.width);
  const auto value_width = as_size(sizes.value_width);
  at_each_level([&] {
    for (const Index at : {1, 31, 32, 45}) {
      const Call<TypeParam> whole(sizes);
      const auto out = whole.forward(sizes.tokens);
      const auto grads = whole.backward();
      const Call<TypeParam> call(sizes);
      const Tensors<TypeParam>& x = call.tensors();
      for (Index t = at; t < sizes.tokens; ++t) {
        x.beta(0, 0, t, 0) = nan;
        for (Index d = 0; d < sizes.width; ++d) x.k(0, 0, t, d) = nan;
        for (Index c = 0; c < sizes.value_width; ++c) x.v(0, 0, t, c) = nan;
      }
      const auto poisoned = call.forward(sizes.tokens);
      const auto poisoned_grads = call.backward();
      for (std::size_t h = 0; h < 2; ++h) {
        const auto first = h * as_size(sizes.rows);
        EXPECT_TRUE(same_bits(poisoned.data() + first * value_width,
                              out.data() + first * value_width, as_size(at) * value_width, {}));
        EXPECT_TRUE(same_bits(poisoned_grads.q.data() + first * width,
                              grads.q.data() + first * width, as_size(at) * width, {}));
        EXPECT_TRUE(std::isnan(poisoned[(first + as_size(at)) * value_width]));
      }
      const Call<TypeParam> rows(sizes);  // d_out of rows before `at`
      for (Index r = 0; r < at; ++r) rows.tensors().d_out(0, 1, r, 0) = nan;
      const auto later = rows.backward();
      const auto t = as_size(at);
      EXPECT_TRUE(
          same_bits(later.k.data() + t * width, grads.k.data() + t * width, (80 - t) * width, {}));
      EXPECT_TRUE(same_bits(later.v.data() + t * value_width, grads.v.data() + t * value_width,
                            (80 - t) * value_width, {}));
      EXPECT_TRUE(same_bits(later.beta.data() + t, grads.beta.data() + t, 80 - t, {}));
    }
  });
}

/// Tokens after the last row are not read, and their gradients are 0.
TYPED_TEST(DeltaRuleBits, TokensAfterTheLastRow) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const Sizes sizes = {.tokens = 70, .rows = 40};
  at_each_level([&] {
    const Grads<TypeParam> grads = Call<TypeParam>(sizes).backward();
    const Call<TypeParam> call(sizes);
    for (Index t = 40; t < 70; ++t) {
      call.tensors().beta(0, 0, t, 0) = nan;
      for (Index d = 0; d < 8; ++d) {
        call.tensors().k(0, 0, t, d) = call.tensors().v(0, 0, t, d) = nan;
      }
    }
    this->expect_same(call.backward(), grads);
    const std::vector<TypeParam> none(as_size(30 * 8));
    EXPECT_TRUE(same_bits(grads.k.data() + 40 * 8, none.data(), none.size(), {}));
    EXPECT_TRUE(same_bits(grads.v.data() + 40 * 8, none.data(), none.size(), {}));
    EXPECT_TRUE(same_bits(grads.beta.data() + 40, none.data(), 30, {}));
  });
}

/// The gradients of a group are those of its heads, added; d_q and products are each head's own.
TYPED_TEST(DeltaRuleBits, HeadsOfAGroup) {
  const Sizes sizes = {.heads = 2, .tokens = 50, .rows = 50, .width = 20};
  at_each_level([&] {
    const Call<TypeParam> both(sizes);
    const auto out = both.forward(sizes.tokens);
    const auto grads = both.backward();
    Sizes one = sizes;
    one.heads = 1;
    const Call<TypeParam> first(one);  // the draws of head 0
    const auto out_first = first.forward(sizes.tokens);
    const auto grads_first = first.backward();
    EXPECT_TRUE(same_bits(out.data(), out_first.data(), out_first.size(), {}));
    EXPECT_TRUE(same_bits(grads.q.data(), grads_first.q.data(), grads_first.q.size(), {}));
    EXPECT_EQ(grads.products[0], grads_first.products[0]);
  });
}

TYPED_TEST(DeltaRuleBits, Accumulate) {
  const Sizes sizes = {.heads = 2, .tokens = 50, .rows = 70, .first = -10};
  at_each_level([&] {
    const Call<TypeParam> call(sizes);
    const Grads<TypeParam> grads = call.backward();
    const TypeParam before = 3;
    Grads<TypeParam> sums = grads;
    for (std::vector<TypeParam>* x : {&sums.q, &sums.k, &sums.v}) {
      for (TypeParam& y : *x) y += before;
    }
    this->expect_same(call.backward(&before), sums);
  });
}

/// The nearest bfloat16, as a float.
float rounded(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  bits += 0x7fff + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}
std::vector<std::uint16_t> upper_halves(const std::vector<float>& x) {
  std::vector<std::uint16_t> halves;
  for (const float y : x) {
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(y) >> 16));
  }
  return halves;
}

TEST(DeltaRuleStorage, BFloat16) {
  const Sizes sizes = {.tokens = 70, .rows = 70, .width = 20, .value_width = 36};
  const Call<float> call(sizes);
  const Tensors<float>& x = call.tensors();
  for (const Tensor<float>* y : {&x.q, &x.k, &x.v, &x.beta}) {
    y->fill([&](Index b, Index h, Index n, Index d) { return rounded((*y)(b, h, n, d)); });
  }
  const auto q = upper_halves(x.q.values());
  const auto k = upper_halves(x.k.values());
  const auto v = upper_halves(x.v.values());
  const std::vector<float> beta = x.beta.values();
  at_each_level([&] {
    std::vector<float> expected = call.forward(sizes.tokens);
    for (float& y : expected) y = rounded(y);
    std::vector<std::uint16_t> out(expected.size());
    constexpr fovea::Storage kStored = fovea::Storage::bfloat16;
    fovea::LinearRows<float, kStored> rows;
    rows.q = {q.data(), sizes.width, 1};
    rows.out = {out.data(), sizes.value_width, 1};
    fovea::DeltaStreamArgs<float, kStored> args;
    args.k = {k.data(), sizes.width, 1};
    args.v = {v.data(), sizes.value_width, 1};
    args.beta = {beta.data(), 1, 1};
    args.width = sizes.width;
    args.value_width = sizes.value_width;
    args.tokens = sizes.tokens;
    args.rows = &rows;
    args.heads = 1;
    args.row_count = sizes.rows;
    const Scratch<float> state(fovea::delta_state_elements<float>(sizes.width, sizes.value_width));
    const Scratch<float> scratch(
        fovea::delta_stream_scratch<float>(sizes.width, sizes.value_width));
    args.state = state.data();
    args.scratch = scratch.data();
    fovea::LinearKernels<float, kStored>{}.delta_stream(args);
    EXPECT_EQ(out, upper_halves(expected));
  });
}

/// Many tokens: the state does not drift.
TEST(DeltaRuleLength, ManyTokens) {
  const Sizes sizes = {.tokens = 20000, .rows = 20000, .width = 4, .value_width = 3};
  const Call<float> call(sizes);
  const Reference<float> expected = Expected<float>(call).forward();
  at_each_level([&] { EXPECT_TRUE(within_ratio(call.forward(sizes.tokens), expected, 8)); });
}

}  // namespace fovea_test::kernels_linear_delta_rule
