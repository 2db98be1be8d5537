// SPDX-License-Identifier: MIT
/// \file
/// The kernels of random features against loops, at every level and at sizes around registers:
/// logits of rows in any layout, features, references that are found, raised and joined.
#include "fovea/kernels/linear/random_features.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "fovea/attention/linear/random_features.hpp"
#include "fovea/core/workspace.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_linear_random_features {

using fovea::FeatureRowsArgs;
using fovea::kFeatureRows;
using fovea::padded_row;
using fovea::RandomFeatureKernels;

/// Numbers that begin as NaN, aligned as kernels want them.
template <class T>
class Numbers {
 public:
  explicit Numbers(Index n) : memory_(n * Index{sizeof(T)}), size_(n) {
    for (Index i = 0; i < n; ++i) data()[i] = std::numeric_limits<T>::quiet_NaN();
  }
  T* data() { return memory_.template data<T>(); }
  T& operator[](Index i) { return data()[i]; }
  Index size() const { return size_; }

 private:
  fovea::Workspace memory_;
  Index size_;
};

template <class T>
class RandomFeatures : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(RandomFeatures, Scalars);

template <class T>
void expect_logits(Index count, Index width, Index features, const Layout& layout, bool is_key) {
  using W = Wide<T>;
  const Tensor<T> x({1, 1, count, width}, layout), w({1, 1, features, width}, layout);
  x.fill(gaussian(1));
  w.fill(gaussian(2));
  const Index row = padded_row<T>(features);
  fovea::RandomFeatures<T> projection;
  Numbers<T> memory(projection.elements(features, width, true)), logits(count * row + 1);
  Numbers<T> scratch(projection.scratch_elements(width));
  projection.pack(w.view(), true, memory.data());
  projection.logits(fovea::detail::head_matrix(View<const T>(x.view()), 0, 0, 0), count, 0, is_key,
                    logits.data(), scratch.data());
  const W root = std::sqrt(std::sqrt(static_cast<W>(width)));
  for (Index i = 0; i < count; ++i) {
    for (Index r = 0; r < features; ++r) {
      W sum = 0, size = 0;
      for (Index c = 0; c < width; ++c) {
        const W xh = x(0, 0, i, c) / root;
        const W product = w(0, 0, r, c) * xh;
        sum += product - (is_key ? xh * xh / 2 : 0);
        size += std::abs(product) + (is_key ? xh * xh / 2 : 0);
      }
      EXPECT_LE(error_ratio<T>(logits[i * row + r], sum, size), 8);
    }
  }
  EXPECT_TRUE(std::isnan(logits[count * row])) << "written behind the last row";
}

TYPED_TEST(RandomFeatures, LogitsOfAnySizesAndLayouts) {
  at_each_level([] {
    for (const Index count : {1, 3, 17, 128}) {
      for (const Index width : {1, 5, 16, 70}) {
        for (const Index features : {1, 15, 33, 64}) {
          expect_logits<TypeParam>(count, width, features, {}, true);
          expect_logits<TypeParam>(count, width, features, {.innermost = 2, .gap = 3}, false);
        }
      }
    }
  });
}

TYPED_TEST(RandomFeatures, KeysStopAtALogitAboveTheReference) {
  using T = TypeParam;
  at_each_level([] {
    for (const Index features : {1, 7, 16, 37}) {
      const Index row = padded_row<T>(features);
      Numbers<T> logits(5 * row), reference(row), factors(row);
      for (Index i = 0; i < 5; ++i) {
        for (Index r = 0; r < features; ++r) logits[i * row + r] = static_cast<T>(-i - r);
      }
      logits[3 * row + features - 1] = 500;
      const RandomFeatureKernels<T> kernels;
      kernels.raise({logits.data(), features, reference.data(), true, factors.data()});
      for (Index r = 0; r < features; ++r) EXPECT_EQ(reference[r], static_cast<T>(16 - r));
      FeatureRowsArgs<T> args{logits.data(), 5, features, reference.data()};
      kernels.keys(args);
      EXPECT_EQ(args.mapped, 3);
      for (Index i = 0; i < 3; ++i) {
        for (Index r = 0; r < row; ++r) {
          const double expected = r < features ? std::exp(-16.0 - static_cast<double>(i)) : 0;
          EXPECT_NEAR(logits[i * row + r], expected, 1e-6 * expected);
        }
      }
      EXPECT_EQ(logits[3 * row + features - 1], 500);
      kernels.raise({logits.data() + 3 * row, features, reference.data(), false, factors.data()});
      EXPECT_EQ(reference[features - 1], 516);
      EXPECT_LT(factors[features - 1], 1e-100);  // less than e^-500
      for (Index r = 0; r + 1 < features; ++r) {
        EXPECT_EQ(reference[r], static_cast<T>(16 - r));
        EXPECT_EQ(factors[r], 1);
      }
    }
  });
}

TYPED_TEST(RandomFeatures, TheLargestFeatureOfAQueryIs1) {
  using T = TypeParam;
  at_each_level([] {
    for (const Index features : {1, 7, 16, 37}) {
      const Index row = padded_row<T>(features);
      Numbers<T> logits(2 * row), reference(row);
      for (Index r = 0; r < features; ++r) {
        logits[r] = static_cast<T>(300 + r);
        logits[row + r] = static_cast<T>(-300);
        reference[r] = static_cast<T>(-200 + r);
      }
      for (Index r = features; r < row; ++r) reference[r] = std::numeric_limits<T>::infinity();
      RandomFeatureKernels<T>{}.queries({logits.data(), 2, features, reference.data()});
      for (Index r = 0; r < row; ++r) {
        const auto below = static_cast<double>(features - 1 - r);
        EXPECT_NEAR(logits[r], r < features ? std::exp(-2 * below) : 0, 1e-6);
        EXPECT_NEAR(logits[row + r], r < features ? std::exp(-below) : 0, 1e-6);
      }
    }
  });
}

TYPED_TEST(RandomFeatures, SegmentsAreMergedAtTheLargestReference) {
  using T = TypeParam;
  at_each_level([] {
    constexpr Index kFeatures = 19, kValues = 5, kSegments = 3;
    const Index row = padded_row<T>(kFeatures), value_row = padded_row<T>(kValues);
    const Index elements = kFeatures * value_row + 2 * row;
    Numbers<T> sums(kSegments * elements);
    for (Index i = 0; i < sums.size(); ++i) sums[i] = 1;
    const auto reference = [&](Index s) { return sums.data() + s * elements + elements - row; };
    for (Index s = 0; s < kSegments; ++s) {
      for (Index r = 0; r < row; ++r) {
        reference(s)[r] =
            r < kFeatures ? static_cast<T>((s + r) % 3 * 100) : std::numeric_limits<T>::infinity();
      }
    }
    RandomFeatureKernels<T>{}.join({sums.data(), kSegments, elements, kFeatures, kValues});
    for (Index s = 0; s < kSegments; ++s) {
      for (Index r = 0; r < kFeatures; ++r) {
        const T expected =
            (s + r) % 3 == 2
                ? T(1)
                : static_cast<T>(std::exp(100.0 * static_cast<double>((s + r) % 3) - 200));
        EXPECT_NEAR(sums[s * elements + r * value_row + 4], expected, 1e-6 * expected);
        EXPECT_NEAR(sums[s * elements + kFeatures * value_row + r], expected, 1e-6 * expected);
        EXPECT_EQ(reference(s)[r], s == 0 ? 200 : 0);
      }
    }
  });
}

}  // namespace fovea_test::kernels_linear_random_features
