// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED NEEDS fftw)
/// \file
/// HiddenStateCross against the double loops of its equations, forward and backward, at every
/// level: sequences of every length, channels; the adjoint by central differences; a sequence has
/// the same bits alone, for any threads and for the levels with a fused multiply-add; NaN and
/// infinities stay in their channel. (For key lengths, strides and guards see
/// tests/fuzz/transforms.hpp.)
#include "fovea/spectral/hidden_state_cross.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/spectral.hpp"
#include "spectral/cross_case.hpp"
#include "support/central_differences.hpp"
#include "support/executors.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::spectral_hidden_state_cross {

using fovea::channels_view;

/// Of the bound u lg n |x| |y|.
constexpr double kBound = 8;

template <class T>
class Cross : public testing::Test {
 public:
  void expect_oracle(const CrossCase<T>& of) {
    const auto expected = of.expected();
    at_each_level([&] {
      const auto got = of.run();
      EXPECT_TRUE(within_ratio(got.out, expected.out, kBound, {"fourier_cross", "out"}));
      EXPECT_TRUE(within_ratio(got.d_f1, expected.d_f1, kBound, {"fourier_cross", "d_f1"}));
      EXPECT_TRUE(within_ratio(got.d_f2, expected.d_f2, kBound, {"fourier_cross", "d_f2"}));
    });
  }
};
TYPED_TEST_SUITE(Cross, Scalars);

TYPED_TEST(Cross, ShortLengths) {
  for (const Index n :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 17, 31, 33, 64, 97, 128, 251}) {
    SCOPED_TRACE(n);
    for (const Index channels : {1, 3, 16, 33, 64}) {
      SCOPED_TRACE(channels);
      this->expect_oracle(
          CrossCase<TypeParam>({1, 1, n, n > 64 ? std::min<Index>(channels, 3) : channels}));
    }
  }
}

/// Beyond 4096 a step of our own surrounds FFTW's transforms.
TYPED_TEST(Cross, LongLengths) {
  for (const Index n : {1000, 1023, 4095, 4096, 4097, 8191, 8193}) {
    SCOPED_TRACE(n);
    this->expect_oracle(CrossCase<TypeParam>({1, 1, n, 1}));
  }
}

/// Every number of rows of the outer step, where no double loop fits: f1 is one impulse or two, so
/// that each sum has few terms.
TYPED_TEST(Cross, ImpulsesInVeryLongSequences) {
  using T = TypeParam;
  for (const Index n : {Index{9000}, Index{20000}, Index{40000}, Index{70001}, Index{131072}}) {
    SCOPED_TRACE(n);
    const Shape shape{1, 1, n, 1};
    CrossCase<T> of(shape);
    of.f1.fill(constant(0));
    const Index at[] = {3, n / 3, n - 1};
    for (const Index a : at) of.f1(0, 0, a, 0) = static_cast<T>(a % 7 + 1);
    Reference<T> out = cross_reference<T>(shape);
    Reference<T> d_f2 = out;
    const auto x = channel<T>(of.f1.view(), 0, 0, n);
    const auto y = channel<T>(of.f2.view(), 0, 0, n);
    auto g = channel<T>(of.g.view(), 0, 0, n);
    g.back() = 0;
    std::vector<Wide<T>> value(as_size(n));
    std::vector<Wide<T>> gradient(as_size(n));
    for (Index i = 0; i < n; ++i) {
      for (const Index a : at) {
        for (const Index k : {2 * i, 2 * i + 1}) {
          if (k - a >= 0 && k - a < n) value[as_size(i)] += x[as_size(a)] * y[as_size(k - a)];
        }
        gradient[as_size(i)] += g[as_size((i + a) / 2)] * x[as_size(a)];
      }
      value[as_size(i)] -= x[as_size(i)] * y[as_size(i)];
      gradient[as_size(i)] -= g[as_size(i)] * x[as_size(i)];
    }
    value.back() = 0;
    put_channel(out, 0, 0, value, norm(x) * norm(y));
    put_channel(d_f2, 0, 0, gradient, norm(x) * norm(g));
    at_each_level([&] {
      const auto got = of.run();
      EXPECT_TRUE(within_ratio(got.out, out, kBound, {"fourier_cross", "out"}));
      EXPECT_TRUE(within_ratio(got.d_f2, d_f2, kBound, {"fourier_cross", "d_f2"}));
    });
  }
}

TYPED_TEST(Cross, LastRowsAreZeroBits) {
  using T = TypeParam;
  const CrossCase<T> of({3, 1, 40, 5}, {40, 17, 1});
  at_each_level([&] {
    const auto got = of.run();
    std::size_t i = 0;
    for_each_index(of.f1.shape(), [&](Index b, Index, Index row, Index) {
      const auto expect_zero = [&](const std::vector<T>& x, bool is_zero) {
        EXPECT_TRUE(!is_zero || (x[i] == 0 && !std::signbit(x[i])));
      };
      expect_zero(got.out, row + 1 >= of.length(b));
      expect_zero(got.d_f1, row >= of.length(b));
      expect_zero(got.d_f2, row >= of.length(b));
      ++i;
    });
  });
}

/// The transform's size is that of the sequence, not of the tensor; and channels are independent.
TYPED_TEST(Cross, ASequenceHasTheSameBitsAlone) {
  using T = TypeParam;
  const CrossCase<T> padded({2, 1, 300, 40}, {211, 300});
  at_each_level([&] {
    const auto together = padded.run();
    for (const Index c : {0, 7, 31, 39}) {
      CrossCase<T> alone({1, 1, 211, 1});
      alone.f1.fill([&](Index, Index, Index i, Index) { return padded.f1(0, 0, i, c); });
      alone.f2.fill([&](Index, Index, Index i, Index) { return padded.f2(0, 0, i, c); });
      alone.g.fill([&](Index, Index, Index i, Index) { return padded.g(0, 0, i, c); });
      const auto single = alone.run();
      const auto expect_column = [&](const std::vector<T>& all, const std::vector<T>& one) {
        std::vector<T> column;
        for (Index i = 0; i < 211; ++i) column.push_back(all[as_size(i * 40 + c)]);
        EXPECT_TRUE(same_bits(column, one));
      };
      expect_column(together.out, single.out);
      expect_column(together.d_f1, single.d_f1);
      expect_column(together.d_f2, single.d_f2);
    }
  });
}

TYPED_TEST(Cross, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  fovea::ThreadPool pool(3);
  Backwards backwards;
  Shuffled shuffled;
  for (const Shape& shape : {Shape{3, 1, 100, 70}, Shape{1, 1, 5000, 65}}) {
    const CrossCase<T> of(shape);
    const auto expected = of.run();
    EXPECT_TRUE(same_bits(of.run(pool), expected));
    EXPECT_TRUE(same_bits(of.run(backwards), expected));
    EXPECT_TRUE(same_bits(of.run(shuffled), expected));
  }
}

/// What is left over of a row of the spectrum at one level fills a register of another: every
/// length up to 130, then such as need factors of 3 and 5, and steps around FFTW's transforms.
TYPED_TEST(Cross, LevelsWithFmaHaveTheSameBits) {
  using T = TypeParam;
  std::vector<Index> lengths = {173,  251,  331,  499,  599,  700,  997,  1500,
                                2053, 3001, 4096, 4099, 5000, 9001, 20011};
  for (Index n = 1; n <= 130; ++n) lengths.push_back(n);
  for (const Index n : lengths) {
    SCOPED_TRACE(n);
    for (const Index channels : {1, 7, 35}) {
      if (n > 130 && channels > 7) continue;
      SCOPED_TRACE(channels);
      const CrossCase<T> of({1, 1, n, channels});
      expect_levels_agree([&] { return of.run(); });
    }
  }
}

/// Without one of the gradients the other has the same bits.
TYPED_TEST(Cross, SingleGradients) {
  using T = TypeParam;
  const CrossCase<T> of({2, 1, 60, 20}, {60, 33});
  const auto expected = of.run();
  const HiddenStateCross op;
  const Tensor<T> d_f1(of.f1.shape());
  const Tensor<T> d_f2(of.f1.shape());
  op.backward(of.inputs(), of.g.view(), {.f1 = d_f1.view()});
  op.backward(of.inputs(), of.g.view(), {.f2 = d_f2.view()});
  op.backward(of.inputs(), of.g.view(), {});
  EXPECT_TRUE(same_bits(d_f1.values(), expected.d_f1));
  EXPECT_TRUE(same_bits(d_f2.values(), expected.d_f2));
}

TYPED_TEST(Cross, NonFiniteValuesStayInTheirChannel) {
  using T = TypeParam;
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
    for (const Index row : {0, 5, 19}) {
      CrossCase<T> of({1, 1, 20, 6});
      of.f1(0, 0, row, 2) = bad;
      at_each_level([&] {
        const CrossCase<T> clean({1, 1, 20, 6});
        const auto finite = clean.run();
        const auto got = of.run();
        for (Index i = 0; i < 20; ++i) {
          for (Index c = 0; c < 6; ++c) {
            const std::size_t at = as_size(i * 6 + c);
            const bool is_nan = std::isnan(got.out[at]);
            EXPECT_EQ(is_nan, c == 2 && i < 19) << i << ", " << c;
            EXPECT_EQ(std::isnan(got.d_f2[at]), c == 2) << i << ", " << c;
            if (c == 2) continue;
            EXPECT_EQ(got.out[at], finite.out[at]);
            EXPECT_EQ(got.d_f2[at], finite.d_f2[at]);
          }
        }
        EXPECT_TRUE(same_bits(got.d_f1, finite.d_f1));
      });
    }
  }
}

/// The derivative of <g, forward> in every element, by central differences: of a bilinear function
/// they are exact but for rounding.
TEST(CrossGradients, MatchCentralDifferences) {
  for (const Index n : {1, 2, 5, 12, 33}) {
    CrossCase<double> of({2, 1, n, 3}, {n, n / 2 + 1});
    const auto got = of.run();
    const Tensor<double> out(of.f1.shape());
    const auto loss = [&] {
      HiddenStateCross().forward(of.inputs(), out.view());
      double sum = 0;
      for_each_index(of.f1.shape(), [&](Index b, Index, Index i, Index c) {
        if (i + 1 < of.length(b)) sum += out(b, 0, i, c) * of.g(b, 0, i, c);
      });
      return sum;
    };
    const auto expect_gradient = [&](const Tensor<double>& x, const std::vector<double>& gradient) {
      for_each_difference(x, 0.5, loss, [&](std::size_t i, double expected) {
        EXPECT_NEAR(gradient[i], expected, 1e-11) << n << ": " << i;
      });
    };
    expect_gradient(of.f1, got.d_f1);
    expect_gradient(of.f2, got.d_f2);
  }
}

/// The scalar is that of what is written or of its gradient, whatever kind of tensor that is.
TEST(CrossCalls, AcceptBracedTensors) {
  CrossCase<double> of({1, 1, 7, 2}, {});
  const auto expected = of.run();
  const auto of_eigen = [](const Tensor<double>& x) {
    fovea::Tensor4<double> copy(1, 1, 7, 2);
    for (Index i = 0; i < 7; ++i) {
      for (Index c = 0; c < 2; ++c) copy(0, 0, i, c) = x(0, 0, i, c);
    }
    return copy;
  };
  const fovea::Tensor4<double> f1 = of_eigen(of.f1), f2 = of_eigen(of.f2), d_out = of_eigen(of.g);
  fovea::Tensor4<double> out(1, 1, 7, 2), d_f1 = out;
  const std::vector<int> lengths = {7};
  HiddenStateCross{}.forward({f1, f2, lengths}, out);
  HiddenStateCross{}.backward({.f1 = f1, .f2 = f2}, d_out, {.f1 = d_f1});
  for (std::size_t i = 0; i < 14; ++i) {
    EXPECT_EQ(out.data()[i], expected.out[i]);
    EXPECT_EQ(d_f1.data()[i], expected.d_f1[i]);
  }
  fovea::Tensor4<double> mixed(1, 1, 7, 2), mixed_views = mixed;
  fovea::FourierMixer{}.forward(f1, mixed);
  fovea::FourierMixer{}.forward(View<const double>(f1), View<double>(mixed_views));
  for (Index i = 0; i < 14; ++i) EXPECT_EQ(mixed.data()[i], mixed_views.data()[i]);
}

TEST(CrossMemory, WorkspaceIsLinear) {
  const HiddenStateCross op;
  EXPECT_EQ(op.workspace_bytes<float>(2, 0, 64), 0);
  EXPECT_EQ(op.workspace_bytes<float>(1, 100, 16, 8), op.workspace_bytes<float>(1, 100, 16, 1));
  EXPECT_EQ(op.workspace_bytes<float>(1, 100, 64, 8), 4 * op.workspace_bytes<float>(1, 100, 32));
  // Two blocks of channels, and not much more.
  EXPECT_LT(op.workspace_bytes<float>(1, 65536, 64), Index{65536} * 16 * 4 * 5 / 2);
  EXPECT_LT(op.backward_workspace_bytes<float>(1, 65536, 64), Index{65536} * 16 * 4 * 7 / 2);
}

TEST(CrossTensors, EigenTensorsAsViews) {
  Eigen::Tensor<float, 3, Eigen::RowMajor> f1(2, 9, 4), f2(2, 9, 4), out(2, 9, 4);
  Eigen::Tensor<float, 4> d_f1(2, 1, 9, 4);
  f1.setConstant(1);
  f2.setConstant(2);
  const auto& constant = f1;
  const HiddenStateCross op;
  const CrossInputs<float> in{channels_view(constant), channels_view(f2)};
  op.forward(in, channels_view(out));
  op.backward(in, channels_view(out), {.f1 = d_f1});
  // i + 1 pairs and i + 2 pairs of 2i and 2i + 1, of each 2, while they are in the sequence.
  EXPECT_NEAR(out(1, 0, 3), 2 * (1 + 2) - 2, 1e-4);
  EXPECT_NEAR(out(1, 2, 0), 2 * (5 + 6) - 2, 1e-4);
  EXPECT_EQ(out(1, 8, 0), 0);
}

}  // namespace fovea_test::spectral_hidden_state_cross
