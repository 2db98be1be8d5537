// SPDX-License-Identifier: MIT
// fovea_test(NEEDS fftw)
/// \file
/// Plans of FFTW and their cache: transforms against their definition, what a plan is kept by, how
/// many are kept, the lock of the user, and plans made in many threads at once (which
/// ThreadSanitizer watches; FFTW itself is not instrumented).
#include "fovea/spectral/plan_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <memory>
#include <numbers>
#include <thread>
#include <vector>

#include "fovea/spectral/hidden_state_cross.hpp"
#include "fovea/spectral/transform_size.hpp"
#include "spectral/cross_case.hpp"
#include "support/scalars.hpp"

namespace fovea_test::spectral_plan_cache {

using fovea::fft_plan;
using fovea::FftDirection;
using fovea::FftPlan;
using fovea::FftPlanning;
using fovea::FftShape;
using fovea::SharedCache;
using fovea::transform_size;
using fovea::TransformSize;

template <class T>
class Plans : public testing::Test {};
TYPED_TEST_SUITE(Plans, Scalars);

TYPED_TEST(Plans, AreTransforms) {
  using T = TypeParam;
  for (const Index n : {1, 2, 3, 8, 15, 49}) {
    for (const FftPlanning planning : {FftPlanning::estimate, FftPlanning::measure}) {
      for (const double sign : {-1.0, 1.0}) {
        const FftPlan<T> plan(
            {n, sign < 0 ? FftDirection::forward : FftDirection::inverse, planning});
        fovea::Workspace in(n, 2 * Index{sizeof(T)});
        fovea::Workspace out(n, 2 * Index{sizeof(T)});
        for (Index j = 0; j < 2 * n; ++j) {
          in.template data<T>()[j] = static_cast<T>(hash(1, j, 0, 0, 0) % 17) - 8;
        }
        plan.execute(in.template data<T>(), out.template data<T>());
        for (Index k = 0; k < n; ++k) {
          std::complex<double> sum = 0;
          for (Index j = 0; j < n; ++j) {
            const T* const x = in.template data<T>() + 2 * j;
            const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
            sum += std::complex<double>(double{x[0]}, double{x[1]}) *
                   std::polar(1.0, sign * 2 * std::numbers::pi * turns);
          }
          EXPECT_NEAR(double{out.template data<T>()[2 * k]}, sum.real(), 2e-4) << n << ", " << k;
          EXPECT_NEAR(double{out.template data<T>()[2 * k + 1]}, sum.imag(), 2e-4);
        }
      }
    }
  }
}

TYPED_TEST(Plans, AreCachedByAllParameters) {
  using T = TypeParam;
  const FftShape shape{36};
  const auto plan = fft_plan<T>(shape);
  EXPECT_EQ(fft_plan<T>(shape), plan);
  EXPECT_EQ(plan->shape(), shape);
  EXPECT_NE(fft_plan<T>({40}), plan);
  EXPECT_NE(fft_plan<T>({36, FftDirection::inverse}), plan);
  EXPECT_NE(fft_plan<T>({36, FftDirection::forward, FftPlanning::measure}), plan);
  EXPECT_EQ(fft_plan<T>(shape), plan);
}

TYPED_TEST(Plans, AreBoundedInNumber) {
  using T = TypeParam;
  const auto held = fft_plan<T>({2});
  for (Index n = 3; n < 3 + 2 * Index{fovea::kCachedPlans}; ++n) {
    const FftShape shape{n};
    fft_plan<T>(shape);
    EXPECT_LE(fovea::fft_plans<T>().size(), fovea::kCachedPlans);
  }
  EXPECT_EQ(fovea::fft_plans<T>().size(), fovea::kCachedPlans);
  EXPECT_NE(fft_plan<T>({2}), held);  // dropped, and alive for who held it
  EXPECT_EQ(held->shape().size, 2);
}

TEST(SharedCaches, EvictTheLeastRecentlyUsed) {
  SharedCache<int, int> cache(2);
  int made = 0;
  const auto find = [&](int key) {
    return *cache.find_or_make(key, [&] { return std::make_shared<int>(100 * ++made + key); });
  };
  EXPECT_EQ(find(1), 101);
  EXPECT_EQ(find(2), 202);
  EXPECT_EQ(find(1), 101);
  EXPECT_EQ(find(3), 303);  // instead of 2
  EXPECT_EQ(find(1), 101);
  EXPECT_EQ(find(2), 402);
  EXPECT_EQ(cache.size(), 2u);
  cache.clear();
  EXPECT_EQ(find(1), 501);
}

TEST(SharedCaches, AreUnchangedIfCreationFails) {
  SharedCache<int, int> cache(1);
  cache.find_or_make(1, [] { return std::make_shared<int>(7); });
  const auto fails = []() -> std::shared_ptr<int> { throw std::bad_alloc(); };
  EXPECT_THROW(cache.find_or_make(2, fails), std::bad_alloc);
  EXPECT_EQ(*cache.find_or_make(1, fails), 7);
}

std::atomic<int> locked{0};
std::atomic<int> times_locked{0};

TEST(FftwLocks, TheUsersLockIsHeldDuringPlanningAndDestruction) {
  fovea::set_fftw_lock(
      [] {
        EXPECT_EQ(locked++, 0);
        ++times_locked;
      },
      [] { EXPECT_EQ(locked--, 1); });
  const int before = times_locked;
  {
    const FftPlan<float> plan({24});
    EXPECT_EQ(times_locked, before + 1);
    EXPECT_EQ(locked, 0);
  }
  EXPECT_EQ(times_locked, before + 2);
  CrossCase<float>({1, 1, 777, 2}).run();
  EXPECT_GT(times_locked, before + 2);
  fovea::set_fftw_lock(nullptr, nullptr);
  const int after = times_locked;
  const FftPlan<double> plan({24});
  EXPECT_EQ(times_locked, after);
}

/// Threads that plan the same sizes and different ones, forward and backward, float and double,
/// while others execute.
TEST(PlanThreads, PlanAtOnce) {
  fovea::fft_plans<float>().clear();
  fovea::fft_plans<double>().clear();
  const auto of_length = [](Index n) { return Shape{1, 1, n, 2}; };
  const auto length = [](int thread, int turn) { return Index{20 + 7 * (thread % 3) + 5 * turn}; };
  std::vector<std::thread> threads;
  std::atomic<int> differences{0};
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&, thread] {
      for (int turn = 0; turn < 8; ++turn) {
        const CrossCase<float> a(of_length(length(thread, turn)));
        const CrossCase<double> b(of_length(length(thread, turn)));
        const auto first = a.run();
        const auto of_double = b.run();
        if (thread % 2 == 1) fovea::fft_plans<float>().clear();
        if (first.out != a.run().out) ++differences;
        if (of_double.d_f1 != b.run().d_f1) ++differences;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differences, 0);
}

TEST(TransformSizes, AreFastSizesCloseToTheLength) {
  static_assert(fovea::is_good_size(1) && fovea::is_good_size(2 * 3 * 5 * 7 * 8));
  static_assert(!fovea::is_good_size(11) && !fovea::is_good_size(2 * 13));
  static_assert(transform_size(1) == TransformSize{1, 2});
  static_assert(transform_size(11) == TransformSize{1, 12});
  static_assert(transform_size(4096) == TransformSize{1, 4096});
  static_assert(transform_size(4097) == TransformSize{2, 2240});
  static_assert(transform_size(65536) == TransformSize{16, 4096});
  Index before = 0;
  for (Index n = 1; n < 300000; n += n < 20000 ? 1 : 37) {
    const TransformSize size = transform_size(n);
    ASSERT_GE(size.size(), n);
    ASSERT_GE(size.size(), before) << "scratch for L must do for shorter sequences";
    ASSERT_LE(size.size(), n + n / 8 + 2) << n;
    ASSERT_EQ(size.columns % (size.rows == 1 ? 2 : 32), 0);
    ASSERT_TRUE(fovea::is_good_size(size.size()));
    before = size.size();
  }
}

}  // namespace fovea_test::spectral_plan_cache
