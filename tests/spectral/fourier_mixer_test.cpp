// SPDX-License-Identifier: MIT
// fovea_test(HEAP NEEDS fftw)
/// \file
/// FourierMixer against the double loops of its definition, at every level, in sizes of every kind;
/// its backward pass is its transpose, by central differences; neither batch nor the levels with a
/// fused multiply-add change a bit; what it refuses; arenas and failing allocations. (For strides,
/// guards and threads see tests/fuzz/transforms.hpp.)
#include "fovea/spectral/fourier_mixer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/spectral/plan_cache.hpp"
#include "support/between_fences.hpp"
#include "support/central_differences.hpp"
#include "support/executors.hpp"
#include "support/failing_allocations.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/oracle/fourier_mixer.hpp"
#include "support/refusal.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::spectral_fourier_mixer {

using fovea::Arena;
using fovea::FourierMixer;

/// Of the bound u lg(N D) |x|.
constexpr double kBound = 8;

template <class T>
Tensor<T> drawn(const Shape& shape, std::uint64_t seed = 1) {
  Tensor<T> x(shape);
  x.fill(gaussian(seed));
  return x;
}

template <class T>
std::vector<T> mixed(const Tensor<T>& x) {
  const Tensor<T> out(x.shape());
  FourierMixer().forward(x.view(), out.view());
  return out.values();
}

template <class T>
class Mixer : public testing::Test {
 public:
  void expect_oracle(const Tensor<T>& x) {
    const auto expected = oracle_fourier_mixer<T>(x.view());
    at_each_level([&] {
      EXPECT_TRUE(within_ratio(mixed(x), expected, kBound, {"fourier_mixer", "out"}));
    });
  }
};
TYPED_TEST_SUITE(Mixer, Scalars);

TYPED_TEST(Mixer, Sizes) {
  for (const Index n : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 34, 47, 64, 67}) {
    for (const Index d : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 34, 62, 64, 66, 67}) {
      SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(d));
      this->expect_oracle(drawn<TypeParam>({1, 1, n, d}));
    }
  }
  this->expect_oracle(drawn<TypeParam>({1, 1, 512, 128}));
  this->expect_oracle(drawn<TypeParam>({1, 1, 101, 257}));
}

/// Also with a number of columns that is not a multiple of a group of lanes, and for the scratch
/// after them.
TYPED_TEST(Mixer, StaysWithinItsMemory) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{1, 1, 70, 33}, Shape{1, 1, 257, 4}, Shape{2, 1, 9, 70}}) {
    at_each_level([&] {
      const auto here = mixed(drawn<T>(shape));
      between_fences([&] { EXPECT_TRUE(same_bits(mixed(drawn<T>(shape)), here)); });
    });
  }
}

TYPED_TEST(Mixer, ASequenceHasTheSameBitsAlone) {
  using T = TypeParam;
  const Tensor<T> x = drawn<T>({3, 1, 130, 150});
  const auto expected = mixed(x);
  Tensor<T> last({1, 1, 130, 150});
  last.fill([&](Index, Index, Index n, Index d) { return x(2, 0, n, d); });
  const auto alone = mixed(last);
  EXPECT_TRUE(same_bits(std::vector<T>(expected.end() - 130 * 150, expected.end()), alone));
}

TYPED_TEST(Mixer, LevelsWithFmaHaveTheSameBits) {
  using T = TypeParam;
  for (Index n = 1; n <= 70; ++n) {
    for (const Index d : {1, 2, 9, 31, 32, 33, 34, 64, 100}) {
      const Tensor<T> x = drawn<T>({1, 1, n, d});
      SCOPED_TRACE(testing::Message() << n << " x " << d);
      expect_levels_agree([&] { return mixed(x); });
    }
  }
}

/// The derivative of <g, forward> in every element, by central differences: of a linear function
/// they are exact but for rounding.
TEST(MixerGradients, MatchCentralDifferences) {
  for (const Index n : {1, 2, 5, 12}) {
    for (const Index d : {1, 3, 8}) {
      const Shape shape = {2, 1, n, d};
      const Tensor<double> x = drawn<double>(shape);
      const Tensor<double> g = drawn<double>(shape, 7);
      const Tensor<double> d_x(shape);
      FourierMixer().backward(g.view(), d_x.view());
      const auto loss = [&] {
        const auto y = mixed(x), weights = g.values();
        return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
      };
      const auto got = d_x.values();
      for_each_difference(x, 0.5, loss, [&](std::size_t i, double expected) {
        EXPECT_NEAR(got[i], expected, 1e-11) << n << ", " << d;
      });
    }
  }
}

TYPED_TEST(Mixer, NonFiniteValuesStayInTheirSequence) {
  using T = TypeParam;
  const Shape shape = {2, 1, 20, 18};
  const auto clean = mixed(drawn<T>(shape));
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
    const Tensor<T> x = drawn<T>(shape);
    x(1, 0, 3, 5) = bad;
    at_each_level([&] {
      const auto got = mixed(x);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(std::isfinite(got[i]), i < got.size() / 2) << i;
      }
    });
    const auto got = mixed(x);
    EXPECT_TRUE(same_bits(std::vector<T>(got.begin(), got.begin() + 360),
                          std::vector<T>(clean.begin(), clean.begin() + 360)));
  }
}

TEST(MixerBadInput, IsReported) {
  const Tensor<float> x = drawn<float>({2, 1, 4, 3});
  const Tensor<float> out(x.shape());
  out.fill(constant(7));
  const auto message = [&](const View<const float>& from, const View<float>& to) {
    const std::string text = refusal([&] { FourierMixer().forward(from, to); });
    for (const float y : out.values()) EXPECT_EQ(y, 7.0F) << "written before the refusal";
    return text;
  };
  const Tensor<float> heads({2, 2, 4, 3});
  EXPECT_EQ(message(heads.view(), out.view()),
            "FourierMixer: x has 2 heads; expected 1: the mixer has no heads");
  const Tensor<float> longer({2, 1, 5, 3});
  EXPECT_EQ(message(x.view(), longer.view()),
            "FourierMixer: out has shape 2x1x5x3; expected 2x1x4x3, the shape of x");
  EXPECT_EQ(message(x.view(), x.view()),
            "FourierMixer: out overlaps x; outputs must not alias inputs or each other");
  const View<float> broadcast(&out(0, 0, 0, 0), {2, 1, 4, 3}, {12, 0, 0, 1});
  EXPECT_EQ(message(x.view(), broadcast),
            "FourierMixer: out has strides [12, 0, 0, 1] for 2x1x4x3; the elements of an output "
            "need different addresses");
  EXPECT_EQ(
      refusal([&] { FourierMixer().backward(x.view(), longer.view()); }),
      "FourierMixer: the gradient of x has shape 2x1x5x3; expected 2x1x4x3, the shape of d_out");
  float one = 0;
  const View<const float> endless(&one, {1, 1, (Index{1} << 28) + 1, 1}, {0, 0, 0, 0});
  EXPECT_EQ(message(endless, out.view()),
            "FourierMixer: x has 268435457 rows; expected at most 268435456, the limit of FFTW");
  for (const Shape& shape : {Shape{0, 1, 4, 3}, Shape{2, 1, 0, 3}, Shape{2, 1, 4, 0}}) {
    const Tensor<double> none(shape);
    const Tensor<double> to(shape);
    FourierMixer().forward(none.view(), to.view());
    FourierMixer().backward(none.view(), to.view());
  }
}

/// An arena of the stated size is sufficient, and a byte less is refused with nothing written.
TEST(MixerMemory, InAnArena) {
  const Tensor<float> x = drawn<float>({2, 1, 200, 90});
  const auto expected = mixed(x);
  const Tensor<float> out(x.shape());
  for (const int workers : {1, 2, 3, 20}) {
    const fovea::ThreadPool pool(workers);
    out.fill(constant(kUntouched));
    const auto call = [&](Arena& arena) {
      AnyExecutor executor = AnyExecutor::of(pool, &arena);
      FourierMixer().forward(x.view(), out.view(), executor);
    };
    const Index bytes = FourierMixer().workspace_bytes<float>(200, 90, workers);
    Arena small(bytes - 1);
    EXPECT_EQ(refusal([&] { call(small); }), "Arena: size_bytes is " + std::to_string(bytes - 1) +
                                                 "; expected at least " + std::to_string(bytes) +
                                                 ", which the call needs");
    EXPECT_TRUE(is_untouched(out.values()));
    Arena arena(bytes);
    call(arena);
    const std::ptrdiff_t before = heap().reset();
    call(arena);
    EXPECT_LE(heap().peak - before, 4096);
    EXPECT_TRUE(same_bits(expected, out.values()));
  }
  EXPECT_LT(FourierMixer().workspace_bytes<float>(4096, 512), Index{4096} * 512 * 4);
  EXPECT_EQ(FourierMixer().workspace_bytes<float>(0, 512), 0);
}

TEST(MixerMemory, FailedAllocations) {
  const Tensor<float> x = drawn<float>({2, 1, 70, 40});
  const auto expected = mixed(x);
  serial_and_in_a_pool([&](AnyExecutor* executor) {
    const Tensor<float> out(x.shape());
    fail_each_allocation(
        [&] {
          fovea::fft_plans<float>().clear();
          out.fill(constant(kUntouched));
        },
        [&] {
          executor == nullptr ? FourierMixer().forward(x.view(), out.view())
                              : FourierMixer().forward(x.view(), out.view(), *executor);
        },
        [&] { EXPECT_TRUE(is_untouched(out.values())); },
        [&] { EXPECT_TRUE(same_bits(expected, out.values())); });
  });
}

TEST(MixerTensors, EigenTensorsAsViews) {
  Eigen::Tensor<float, 4> x(1, 1, 3, 2);
  Eigen::Tensor<float, 4> y(1, 1, 3, 2);
  x.setConstant(2);
  FourierMixer().forward(x, fovea::View<float>(y));
  EXPECT_EQ(y(0, 0, 0, 0), 12);
  EXPECT_NEAR(y(0, 0, 2, 1), 0, 1e-6);
}

}  // namespace fovea_test::spectral_fourier_mixer
