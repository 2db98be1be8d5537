// SPDX-License-Identifier: MIT
/// \file
/// Feature maps as MATHS.md, section 4 writes them, for the oracles of the far field.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "support/reference.hpp"

namespace fovea_test {

/// A feature map phi of single numbers.
template <class T>
struct OracleMap {
  std::function<Wide<T>(Wide<T>)> value;
  std::function<Wide<T>(Wide<T>)> derivative;
  /// Whether phi > 0 wherever it does not underflow.
  bool positive = true;
};

/// max(x, 0) + exp(min(x, 0)) at sign x. \param sign 1: elu(x) + 1, -1: elu(-x) + 1
template <class T>
OracleMap<T> elu_plus_one(int sign = 1) {
  using W = Wide<T>;
  const auto s = static_cast<W>(sign);
  return {[s](W x) { return s * x < 0 ? std::exp(s * x) : s * x + 1; },
          [s](W x) { return s * x < 0 ? s * std::exp(s * x)
                            : x == x  ? s
                                      : x; }};
}

/// 1 + tanh(x) and its derivative, without their cancellations.
template <class T>
OracleMap<T> tanh_plus_one() {
  using W = Wide<T>;
  return {[](W x) { return 2 / (1 + std::exp(-2 * x)); },
          [](W x) { return 1 / (std::cosh(x) * std::cosh(x)); }};
}

template <class T>
OracleMap<T> tanh_map() {
  using W = Wide<T>;
  return {[](W x) { return std::tanh(x); }, [](W x) { return 1 / (std::cosh(x) * std::cosh(x)); },
          false};
}

/// max(x, 0), its derivative 0 at 0.
template <class T>
OracleMap<T> relu() {
  using W = Wide<T>;
  return {[](W x) { return x < 0 ? W{0} : x; },
          [](W x) { return x > 0    ? W{1}
                           : x == x ? W{0}
                                    : x; }, false};
}

/// phi(x); 0 or infinite where T cannot represent it: if there are no other terms, T then computes
/// 0 / 0.
template <class T>
Wide<T> feature(const OracleMap<T>& map, Wide<T> x) {
  const Wide<T> value = map.value(x);
  const T rounded = static_cast<T>(value);
  return rounded == 0 || std::isinf(rounded) ? Wide<T>{rounded} : value;
}

/// The features of all of x [B, H, N, D] and their slopes, those of several maps side by side.
template <class T>
struct OracleFeatures {
  using W = Wide<T>;
  Shape shape;                    // D is that of all features
  std::vector<W> values, slopes;  // [B, H, N, D]

  OracleFeatures(const std::vector<OracleMap<T>>& maps, const View<const T>& x) : shape(x.shape()) {
    shape[3] *= static_cast<Index>(maps.size());
    for_each_index(shape, [&](Index b, Index h, Index n, Index d) {
      const OracleMap<T>& map = maps[static_cast<std::size_t>(d / x.width())];
      const W element = x(b, h, n, d % x.width());
      values.push_back(feature(map, element));
      slopes.push_back(map.derivative(element));
    });
  }

  /// Of one row, [D].
  std::vector<W> row(Index b, Index h, Index n) const {
    const W* const first = values.data() + place(b, h, n);
    return {first, first + shape[3]};
  }
  const W* slopes_of_row(Index b, Index h, Index n) const { return slopes.data() + place(b, h, n); }

 private:
  Index place(Index b, Index h, Index n) const {
    return ((b * shape[1] + h) * shape[2] + n) * shape[3];
  }
};

}  // namespace fovea_test
