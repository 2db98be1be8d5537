// SPDX-License-Identifier: MIT
/// \file
/// One cross of hidden states, run forward and backward, and its oracle.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/spectral/hidden_state_cross.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/oracle/hidden_state_cross.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::CrossGrads;
using fovea::CrossInputs;
using fovea::HiddenStateCross;

/// f1, f2 and d_out, normal; NaN from the key lengths on.
template <class T>
class CrossCase {
 public:
  explicit CrossCase(const Shape& shape, std::vector<Index> lengths = {}, const Layout& layout = {})
      : lengths_(std::move(lengths)), f1(shape, layout), f2(shape, layout), g(shape, layout) {
    f1.fill(gaussian(1));
    f2.fill(gaussian(2, 3));
    g.fill(gaussian(3));
    constexpr T nan = std::numeric_limits<T>::quiet_NaN();
    for_each_index(shape, [&](Index b, Index, Index i, Index c) {
      const Index n = length(b);
      if (i >= n) f1(b, 0, i, c) = f2(b, 0, i, c) = nan;
      if (i + 1 >= n) g(b, 0, i, c) = nan;
    });
  }

  struct Result {
    std::vector<T> out, d_f1, d_f2;

    /// Calls f(name, numbers) for each.
    template <class F>
    void for_each(F&& f) const {
      f("out", out), f("d_f1", d_f1), f("d_f2", d_f2);
    }
  };

  template <class E = fovea::Serial>
  Result run(E&& executor = {}, const Layout& layout = {}) const {
    const Tensor<T> out(f1.shape(), layout);
    const Tensor<T> d_f1(f1.shape(), layout);
    const Tensor<T> d_f2(f1.shape(), layout);
    const HiddenStateCross op;
    op.forward(inputs(), out.view(), executor);
    op.backward(inputs(), g.view(), {d_f1.view(), d_f2.view()}, executor);
    EXPECT_EQ(out.changed_gaps() + d_f1.changed_gaps() + d_f2.changed_gaps(), 0);
    return {out.values(), d_f1.values(), d_f2.values()};
  }

  struct Expectation {
    Reference<T> out, d_f1, d_f2;
  };

  /// Gauges of 0, which require +0, for rows that must be 0.
  Expectation expected() const {
    const Reference<T> none = cross_reference<T>(f1.shape());
    Expectation to{none, none, none};
    for (Index b = 0; b < f1.shape()[0]; ++b) {
      const Index n = length(b);
      for (Index c = 0; c < f1.shape()[3]; ++c) {
        const auto x = channel<T>(f1.view(), b, c, n);
        const auto y = channel<T>(f2.view(), b, c, n);
        auto d = channel<T>(g.view(), b, c, n);
        if (n > 0) d.back() = 0;
        put_channel(to.out, b, c, oracle_cross(x, y), norm(x) * norm(y));
        put_channel(to.d_f1, b, c, oracle_cross_gradient(y, d), norm(d) * norm(y));
        put_channel(to.d_f2, b, c, oracle_cross_gradient(x, d), norm(d) * norm(x));
      }
    }
    return to;
  }

  CrossInputs<T> inputs() const { return {f1.view(), f2.view(), lengths_}; }
  Index length(Index b) const { return lengths_.empty() ? f1.shape()[2] : lengths_[as_size(b)]; }

 private:
  std::vector<Index> lengths_;

 public:
  Tensor<T> f1, f2, g;
};

}  // namespace fovea_test
