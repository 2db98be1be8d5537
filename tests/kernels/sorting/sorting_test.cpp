// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention over sorted rows against plain loops, at every level, with poison in
/// what they must not read.
#include "fovea/kernels/sorting/sorting.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "fovea/kernels/sorting/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"

namespace fovea_test::kernels_sorting_sorting {

template <class T>
class SortingKernels : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SortingKernels, Scalars);

/// The first maximum of [y, -y]: small integers, which have ties and zeros of both signs.
TYPED_TEST(SortingKernels, BucketsAreFirstMaxima) {
  using T = TypeParam;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  for (const Index rows : {1, 7, 16, 33}) {
    for (const Index width : {1, 2, 5, 40}) {
      const Index stride = rows + 3;
      std::vector<T> y(as_size(width * stride), nan);
      for (Index i = 0; i < rows; ++i) {
        for (Index c = 0; c < width; ++c) {
          y[as_size(c * stride + i)] = static_cast<T>(integers(3, 2)(0, 0, i, c)) * T{-1};
        }
      }
      if (rows > 6) y[as_size((width - 1) * stride + 5)] = nan;
      at_each_level([&] {
        std::vector<std::int32_t> buckets(as_size(rows + 1), 77);
        fovea::HashedRowKernels<T>{}.buckets({y.data(), stride, rows, width, buckets.data()});
        EXPECT_EQ(buckets.back(), 77);
        for (Index i = 0; i < rows; ++i) {
          std::int32_t best = 0;
          T most = -std::numeric_limits<T>::infinity();
          for (Index c = 0; c < 2 * width; ++c) {
            const T x = y[as_size(c % width * stride + i)] * (c < width ? T{1} : T{-1});
            if (x > most) best = static_cast<std::int32_t>(c);
            if (x > most) most = x;
          }
          EXPECT_EQ(buckets[as_size(i)], rows > 6 && i == 5 ? -1 : best) << i;
        }
      });
    }
  }
}

TYPED_TEST(SortingKernels, MergesRowsInPlace) {
  using T = TypeParam;
  const std::vector<std::int32_t> rows = {4, 0, 3};
  const std::vector<T> before = {2, 0.5, 1};
  const std::vector<T> now = {1, 3, 0.25};
  const std::vector<T> factor = {1, 2, 4};
  for (const Index width : {1, 16, 21}) {
    for (const Index column : {1, 2}) {
      const std::vector<T> x(as_size(3 * fovea::padded_size(width)), T{3});
      at_each_level([&] {
        std::vector<T> to(as_size(5 * 50), T{8});
        fovea::HashedRowKernels<T>{}.merge_rows({x.data(),
                                                 {to.data(), 50, column},
                                                 rows.data(),
                                                 3,
                                                 width,
                                                 before.data(),
                                                 now.data(),
                                                 factor.data()});
        for (Index i = 0; i < 5; ++i) {
          for (Index c = 0; c < 50; ++c) {
            const auto at = std::find(rows.begin(), rows.end(), i) - rows.begin();
            const bool is_written = at < 3 && c % column == 0 && c / column < width;
            const auto n = static_cast<std::size_t>(at);
            EXPECT_EQ(to[as_size(i * 50 + c)],
                      is_written ? (8 * before[n] + 3 * now[n]) * factor[n] : T{8});
          }
        }
      });
    }
  }
}

/// The gradient that arrives at unit rows goes on to the rows through the division by their length,
/// unless that was not what divided them; all rows at all widths against plain sums.
TYPED_TEST(SortingKernels, GradientsIncludeTheNormalisation) {
  using T = TypeParam;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<std::int32_t> rows = {2, 0, 3};
  const std::vector<T> inverse = {static_cast<T>(1 / fovea::kLeastLength), nan, T{0.75}, T{2.5}};
  constexpr T scale{0.375};
  for (const Index width : {1, 5, 16, 21, 40}) {
    const Index padded = fovea::padded_size(width);
    const Index size = 3 * padded;
    std::vector<T> d_q(as_size(size), T{0});
    std::vector<T> d_k = d_q;
    std::vector<T> k = d_q;
    for (Index i = 0; i < 3; ++i) {
      for (Index c = 0; c < width; ++c) {
        const std::size_t at = as_size(i * padded + c);
        d_q[at] = static_cast<T>(gaussian(1, 2)(0, 0, i, c));
        d_k[at] = static_cast<T>(gaussian(2, 2)(0, 0, i, c));
        k[at] = static_cast<T>(gaussian(3)(0, 0, i, c));
      }
    }
    at_each_level([&] {
      std::vector<T> grad = d_q;
      fovea::HashedRowKernels<T>{}.unit_row_grads(
          {grad.data(), d_k.data(), k.data(), inverse.data(), rows.data(), 3, width, scale});
      for (Index i = 0; i < 3; ++i) {
        const auto row = [&](const std::vector<T>& x, Index c) {
          return Wide<T>{x[as_size(i * padded + c)]};
        };
        Wide<T> product = 0;
        Wide<T> size_of_product = 0;
        for (Index c = 0; c < width; ++c) {
          product += row(k, c) * row(d_k, c);
          size_of_product += std::abs(row(k, c) * row(d_k, c));
        }
        const Wide<T> by = inverse[as_size(rows[as_size(i)])];
        const Wide<T> along = i == 1 ? Wide<T>{0} : product;
        for (Index c = 0; c < width; ++c) {
          const Wide<T> want = scale * (row(d_q, c) + by * (row(d_k, c) - row(k, c) * along));
          const Wide<T> terms =
              std::abs(row(d_q, c)) +
              by * (std::abs(row(d_k, c)) + std::abs(row(k, c)) * size_of_product);
          EXPECT_NEAR(static_cast<double>(row(grad, c)), static_cast<double>(want),
                      static_cast<double>(16 * std::numeric_limits<T>::epsilon() * terms))
              << "row " << i << ", column " << c << " of " << width;
        }
      }
    });
  }
}

/// Normalised columns sum to 1, and what is subtracted is the same for a column.
TYPED_TEST(SortingKernels, ColumnsAreNormalisedInLogSpace) {
  using T = TypeParam;
  for (const Index n : {1, 5, 16, 70, 150}) {
    std::vector<T> x;
    for (Index i = 0; i < n * n; ++i) x.push_back(static_cast<T>(gaussian(5, 3)(0, 0, i, 0)));
    std::vector<std::vector<T>> results;
    at_each_level([&] {
      std::vector<T> logs = x;
      fovea::SortingLogitKernels<T>{}.log_columns({logs.data(), nullptr, n, n});
      for (Index c = 0; c < n; ++c) {
        Wide<T> sum = 0;
        Wide<T> before = 0;
        for (Index r = 0; r < n; ++r) {
          sum += std::exp(Wide<T>{logs[as_size(r * n + c)]});
          before += std::exp(Wide<T>{x[as_size(r * n + c)]});
        }
        EXPECT_NEAR(static_cast<double>(sum), 1, 40 * std::numeric_limits<T>::epsilon());
        EXPECT_NEAR(logs[as_size(c)], static_cast<double>(x[as_size(c)] - std::log(before)),
                    40 * std::numeric_limits<T>::epsilon());
      }
      if (has_fma(fovea::isa_level())) results.push_back(logs);
    });
    for (const std::vector<T>& other : results) EXPECT_TRUE(same_bits(results[0], other));
  }
}

}  // namespace fovea_test::kernels_sorting_sorting
