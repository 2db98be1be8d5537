// Exact special values, error in ulp, monotonicity and equal bits of simd/math.inl.hpp, at every
// level. FOVEA_MATH_STRIDE=1 takes all 2^32 floats; the default takes every 4093rd,
// that of the full suite every 1021st.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fovea/core/config.hpp"

namespace {
enum class MathFunction { exp2_fraction, exp2, exp, log, tanh, sigmoid };
}

#define FOVEA_LEVEL_BODY "simd/math_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"
#include "support/exactness.hpp"
#include "support/levels.hpp"

namespace {

using fovea::Index;
using fovea::IsaLevel;
using fovea_test::has_fma;

template <class T>
inline constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

const char* name(MathFunction f) {
  constexpr std::array names = {"exp2_fraction", "exp2", "exp", "log", "tanh", "sigmoid"};
  return names[static_cast<std::size_t>(f)];
}

// ---- the function under test, at one level ------------------------------------------------------

template <class T>
using Evaluate = void (*)(MathFunction, const T*, T*, Index);

/// `evaluate` of one level, or null where this unit or this machine does not have it.
template <class T>
Evaluate<T> evaluate_at(IsaLevel level) {
  if (level > fovea::highest_isa_level() || level < fovea::kUnitIsaLevel) return nullptr;
  return FOVEA_AT_LEVEL(level, evaluate<T>);
}

#define FOVEA_SKIP_WITHOUT(level)           \
  if (evaluate_at<float>(level) == nullptr) \
  GTEST_SKIP() << "level " << fovea::name(level) << " is not in this unit or machine"

template <class T>
T evaluate_one(IsaLevel level, MathFunction f, T x) {
  T y = 0;
  evaluate_at<T>(level)(f, &x, &y, 1);
  return y;
}

// ---- numbers in order ---------------------------------------------------------------------------

template <class T>
using Key = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
inline constexpr Key<T> kTop = Key<T>{1} << (8 * sizeof(T) - 1);

/// All numbers in increasing order: -NaN, -infinity ... -0, +0 ... infinity, NaN.
template <class T>
T number(Key<T> key) {
  return std::bit_cast<T>(key >= kTop<T> ? static_cast<Key<T>>(key - kTop<T>) : ~key);
}
template <class T>
Key<T> key(T x) {
  const auto bits = std::bit_cast<Key<T>>(x);
  return bits >= kTop<T> ? ~bits : static_cast<Key<T>>(bits + kTop<T>);
}

template <class T>
bool same(T a, T b) {
  return std::bit_cast<Key<T>>(a) == std::bit_cast<Key<T>>(b) || (std::isnan(a) && std::isnan(b));
}

/// The numbers number(first + i * stride), i in [0, count).
template <class T>
struct Sweep {
  Key<T> first;
  Key<T> stride;
  std::uint64_t count;
};

template <class T>
Sweep<T> sweep_between(T low, T high, Key<T> stride) {
  return {key(low), stride, (key(high) - key(low)) / stride + 1};
}

std::uint64_t environment_stride() {
  const char* text = std::getenv("FOVEA_MATH_STRIDE");
  const std::uint64_t stride = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  if (stride != 0) return stride;
  return FOVEA_FULL_SUITE ? 1021 : 4093;
}

/// Where something happens in at least one of the functions.
template <class T>
std::vector<T> special_points() {
  using Limits = std::numeric_limits<T>;
  const T ln2 = static_cast<T>(0.693147180559945309L);
  std::vector<T> points = {T(0),          Limits::denorm_min(),
                           Limits::min(), Limits::epsilon(),
                           T(0.5),        std::sqrt(T(0.5)),
                           T(1),          std::sqrt(T(2)),
                           T(1.5),        T(2),
                           T(10),         ln2,
                           Limits::max(), kInfinity<T>};
  const T range = Limits::max_exponent;         // 2^range overflows
  const T bottom = range + Limits::digits - 2;  // 2^-bottom is the last subnormal
  for (const T exponent : {range, range - 2, bottom, bottom + 1}) {
    points.push_back(exponent);
    points.push_back(exponent * ln2);
  }
  for (int n = 1; n < 4 * Limits::digits; n += 2) {
    points.push_back(T(0.5) * static_cast<T>(n));  // where exp2 and exp change n
    points.push_back(T(0.5) * static_cast<T>(n) * ln2);
    points.push_back(T(0.25) * static_cast<T>(n) * ln2);
  }
  return points;
}

/// A sweep of the whole range, and the neighbourhoods of the special points.
template <class T>
std::vector<Sweep<T>> sweeps(MathFunction f) {
  const std::uint64_t stride = environment_stride();
  // doubles: per sweep a quarter as many as floats, up to 2^22
  const std::uint64_t count = std::min<std::uint64_t>((std::uint64_t{1} << 30) / stride, 1 << 22);
  const auto stride_for = [&](T low, T high) {
    return std::max<Key<T>>(1, static_cast<Key<T>>((key(high) - key(low)) / count));
  };
  if (f == MathFunction::exp2_fraction) {
    const T half = T(0.5);
    if constexpr (sizeof(T) == 4) return {sweep_between(-half, half, static_cast<Key<T>>(stride))};
    const T small = std::numeric_limits<T>::epsilon();
    return {sweep_between(-half, -small, stride_for(-half, -small)),
            sweep_between(small, half, stride_for(small, half)),
            {key(T(0)), 1, 1}};
  }
  std::vector<Sweep<T>> result;
  if constexpr (sizeof(T) == 4) {
    result.push_back({0, static_cast<Key<T>>(stride), ((std::uint64_t{1} << 32) - 1) / stride + 1});
    if (stride == 1) return result;
  } else {
    const T low = std::numeric_limits<T>::epsilon() / 4;
    const T high = 2048;
    result.push_back({0, ~Key<T>{0} / count, count});
    result.push_back(sweep_between(-high, -low, stride_for(-high, -low)));
    result.push_back(sweep_between(low, high, stride_for(low, high)));
  }
  constexpr Key<T> around = 256;
  for (const T point : special_points<T>())
    for (const T x : {-point, point}) result.push_back({key(x) - around, 1, 2 * around});
  return result;
}

// ---- the oracle: one precision up ---------------------------------------------------------------

template <class T>
using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;

template <class W>
W exact(MathFunction f, W x) {
  switch (f) {
    case MathFunction::exp2_fraction:
    case MathFunction::exp2:
      return std::exp2(x);
    case MathFunction::exp:
      return std::exp(x);
    case MathFunction::log:
      return std::log(x);
    case MathFunction::tanh:
      return std::tanh(x);
    case MathFunction::sigmoid: {
      const W e = std::exp(-std::abs(x));
      return (x < 0 ? e : 1) / (1 + e);
    }
  }
  return x;
}

/// |y - exact| in ulp of the exact value (at most: 0.5 stands for every correctly rounded y).
/// NaN where one of them is NaN, infinite where one is infinite and the other is not near it.
template <class T>
double ulp_error(T y, Wide<T> exact_value) {
  using W = Wide<T>;
  using Limits = std::numeric_limits<T>;
  if (y == static_cast<T>(exact_value) || (std::isnan(y) && std::isnan(exact_value))) return 0.5;
  int exponent = 0;
  static_cast<void>(std::frexp(exact_value, &exponent));
  if (exact_value == 0) exponent = Limits::min_exponent;
  exponent = std::clamp(exponent, Limits::min_exponent, Limits::max_exponent) - Limits::digits;
  W difference = std::abs(static_cast<W>(y) - exact_value);
  if (std::isinf(y)) {  // it represents the number after the largest
    const W next = std::copysign(std::ldexp(W(1), Limits::max_exponent), static_cast<W>(y));
    difference = std::abs(next - exact_value);
  }
  return static_cast<double>(std::ldexp(difference, -exponent));
}

TEST(UlpError, DetectsEveryKindOfError) {
  EXPECT_EQ(ulp_error(1.0f, 1.0), 0.5);
  EXPECT_EQ(ulp_error(std::nextafter(1.0f, 2.0f), 1.0), 1.0);
  EXPECT_EQ(ulp_error(3e-45f, 0x1p-149), 1.0);
  EXPECT_EQ(ulp_error(0.0f, 3 * 0x1p-149), 3.0);
  EXPECT_FALSE(ulp_error(std::numeric_limits<float>::max(), 0x1p200) <= 2.0);
  EXPECT_EQ(ulp_error(kNaN<float>, static_cast<double>(kNaN<float>)), 0.5);
  EXPECT_FALSE(ulp_error(kNaN<float>, 1.0) <= 2.0);
  EXPECT_FALSE(ulp_error(1.0f, kNaN<double>) <= 2.0);
  EXPECT_FALSE(ulp_error(kInfinity<float>, 1.0) <= 2.0);
  EXPECT_FALSE(ulp_error(1.0f, kInfinity<double>) <= 2.0);
  EXPECT_FALSE(ulp_error(-kInfinity<float>, kInfinity<double>) <= 2.0);
}

// ---- sweeping -----------------------------------------------------------------------------------

template <class T>
struct Worst {
  double error = 0;
  T at = 0;
  std::uint64_t count = 0;
  std::uint64_t falls = 0;  // neighbours in order whose results are not
  T falls_at = 0;

  void merge(const Worst& other) {
    count += other.count;
    if (!(other.error <= error)) error = other.error, at = other.at;  // NaN is the worst
    if (falls == 0) falls_at = other.falls_at;
    falls += other.falls;
  }
};

inline constexpr std::uint64_t kBlock = 4096;

/// The worst of block \p b of a sweep; its first number repeats the last one of block b - 1.
template <class T>
Worst<T> worst_of_block(Evaluate<T> evaluate, MathFunction f, const Sweep<T>& sweep,
                        std::uint64_t b) {
  std::array<T, kBlock> x, y;
  const std::uint64_t first = b * (kBlock - 1);
  const std::uint64_t count = std::min(kBlock, sweep.count - first);
  for (std::uint64_t i = 0; i < count; ++i)
    x[i] = number<T>(sweep.first + static_cast<Key<T>>(first + i) * sweep.stride);
  evaluate(f, x.data(), y.data(), static_cast<Index>(count));

  Worst<T> worst;
  worst.count = count - (b > 0);
  for (std::uint64_t i = b > 0; i < count; ++i) {
    const double error = ulp_error<T>(y[i], exact<Wide<T>>(f, x[i]));
    if (!(error <= worst.error)) worst.error = error, worst.at = x[i];
    if (i > 0 && y[i] < y[i - 1]) {
      if (worst.falls == 0) worst.falls_at = x[i];
      ++worst.falls;
    }
  }
  return worst;
}

/// Calls work(b) for b in [0, count), from all cores if there are many.
template <class Work>
void for_each_block(std::uint64_t count, Work work) {
  std::atomic<std::uint64_t> next{0};
  const auto run = [&] {
    for (std::uint64_t b = next++; b < count; b = next++) work(b);
  };
  std::vector<std::thread> threads;
  if (count > 4096)
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
}

std::uint64_t block_count(std::uint64_t numbers) {
  return numbers < 2 ? 1 : (numbers - 2) / (kBlock - 1) + 1;
}

template <class T>
Worst<T> worst_of(IsaLevel level, MathFunction f) {
  const Evaluate<T> evaluate = evaluate_at<T>(level);
  Worst<T> worst;
  std::mutex mutex;
  for (const Sweep<T>& sweep : sweeps<T>(f)) {
    for_each_block(block_count(sweep.count), [&](std::uint64_t b) {
      const Worst<T> block = worst_of_block(evaluate, f, sweep, b);
      const std::lock_guard lock(mutex);
      worst.merge(block);
    });
  }
  return worst;
}

// ---- the tests ----------------------------------------------------------------------------------

/// The errors that math.inl.hpp documents, in ulp.
struct Stated {
  double fused;
  double unfused;
};

template <class T>
Stated stated(MathFunction f) {
  constexpr bool single = sizeof(T) == 4;
  switch (f) {
    case MathFunction::exp2_fraction:
      return single ? Stated{1.97, 2.16} : Stated{0.85, 1.10};
    case MathFunction::exp2:
      return single ? Stated{0.89, 1.00} : Stated{0.95, 1.05};
    case MathFunction::exp:
      return single ? Stated{0.90, 0.91} : Stated{0.95, 0.95};
    case MathFunction::log:
      return single ? Stated{0.77, 0.85} : Stated{0.80, 0.90};
    case MathFunction::tanh:
      return single ? Stated{0.87, 1.33} : Stated{0.90, 1.40};
    case MathFunction::sigmoid:
      return single ? Stated{1.48, 1.97} : Stated{1.55, 1.95};
  }
  return {0, 0};
}

bool stated_monotone(MathFunction f, IsaLevel level) {
  if (f == MathFunction::exp2_fraction) return false;
  return has_fma(level) || (f != MathFunction::tanh && f != MathFunction::sigmoid);
}

class MathAccuracy : public testing::TestWithParam<std::tuple<MathFunction, IsaLevel>> {
 protected:
  template <class T>
  void check() {
    const auto [f, level] = GetParam();
    FOVEA_SKIP_WITHOUT(level);
    const Worst<T> worst = worst_of<T>(level, f);
    const double bound = has_fma(level) ? stated<T>(f).fused : stated<T>(f).unfused;
    {
      const fovea_test::AtLevel at(level);
      fovea_test::exactness.error<T>("ulp", {name(f), "values"}, worst.error, worst.count);
    }
    EXPECT_FALSE(!(worst.error <= bound))
        << worst.error << " ulp at " << worst.at << ", stated " << bound;
    if (stated_monotone(f, level)) {
      EXPECT_EQ(worst.falls, 0u) << "first at " << worst.falls_at;
    }
  }
};

TEST_P(MathAccuracy, Float) { check<float>(); }
TEST_P(MathAccuracy, Double) { check<double>(); }

constexpr std::array kFunctions = {MathFunction::exp2_fraction, MathFunction::exp2,
                                   MathFunction::exp,           MathFunction::log,
                                   MathFunction::tanh,          MathFunction::sigmoid};
constexpr std::array kLevels = {IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4};

INSTANTIATE_TEST_SUITE_P(, MathAccuracy,
                         testing::Combine(testing::ValuesIn(kFunctions),
                                          testing::ValuesIn(kLevels)),
                         [](const auto& test) {
                           return std::string(name(std::get<0>(test.param))) + "_" +
                                  fovea::name(std::get<1>(test.param));
                         });

template <class T>
struct Special {
  MathFunction f;
  T x;
  T y;
};

template <class T>
std::vector<Special<T>> specials() {
  using Limits = std::numeric_limits<T>;
  constexpr T inf = kInfinity<T>, tiny = Limits::denorm_min(), large = Limits::max();
  constexpr T range = Limits::max_exponent, bottom = range + Limits::digits - 2;
  std::vector<Special<T>> list;
  using enum MathFunction;
  for (const T sign : {T(1), T(-1)}) {
    for (const T x : {T(0), tiny, Limits::min()}) {
      list.push_back({exp2_fraction, sign * x, 1});
      list.push_back({exp2, sign * x, 1});
      list.push_back({exp, sign * x, 1});
      list.push_back({tanh, sign * x, sign * x});
      list.push_back({sigmoid, sign * x, T(0.5)});
    }
    list.push_back({log, sign * 0, -inf});
    list.push_back({tanh, sign * inf, sign});
    list.push_back({tanh, sign * large, sign});
    list.push_back({tanh, sign * 20, sign});
    for (const MathFunction f : kFunctions) list.push_back({f, sign * kNaN<T>, kNaN<T>});
  }
  for (const T x : {inf, large, range}) {
    list.push_back({exp2, x, inf});
    list.push_back({exp, x, inf});
    list.push_back({exp2, -x - bottom, 0});
    list.push_back({exp, -x - bottom, 0});
    list.push_back({sigmoid, x, 1});
    list.push_back({sigmoid, -x - bottom, 0});
    list.push_back({log, -x, kNaN<T>});
  }
  list.push_back({exp2, -bottom - 1, 0});  // half the last subnormal: to even
  list.push_back({log, inf, inf});
  list.push_back({log, 1, 0});
  list.push_back({log, -1, kNaN<T>});
  list.push_back({log, -tiny, kNaN<T>});
  for (T n = -bottom; n < range; ++n)
    list.push_back({exp2, n, std::ldexp(T(1), static_cast<int>(n))});
  return list;
}

class MathLevel : public testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FOVEA_SKIP_WITHOUT(GetParam()); }

  template <class T>
  void check_specials() {
    for (const Special<T>& s : specials<T>()) {
      const T y = evaluate_one(GetParam(), s.f, s.x);
      EXPECT_TRUE(same(y, s.y)) << name(s.f) << "(" << s.x << ") = " << y << ", not " << s.y;
    }
  }

  /// Every length gives the bits of the whole, and writes nothing beyond.
  template <class T>
  void check_tails() {
    constexpr std::size_t size = 64;
    for (const MathFunction f : kFunctions) {
      std::vector<T> x(size), whole(size);
      for (std::size_t i = 0; i < size; ++i)
        x[i] = (static_cast<T>(i * 37 % size) - T(31.5)) /
               T(f == MathFunction::exp2_fraction ? 64 : 3);
      evaluate_at<T>(GetParam())(f, x.data(), whole.data(), size);
      for (std::size_t n = 0; n < size; ++n) {
        const std::vector<T> part(x.end() - static_cast<std::ptrdiff_t>(n), x.end());
        std::vector<T> y(n + 1, T(-7));
        evaluate_at<T>(GetParam())(f, part.data(), y.data(), static_cast<Index>(n));
        for (std::size_t i = 0; i < n; ++i)
          EXPECT_TRUE(same(y[i], whole[size - n + i])) << name(f) << ", " << i << " of " << n;
        EXPECT_EQ(y[n], T(-7)) << name(f) << ", after " << n;
      }
    }
  }

  template <class T>
  void check_odd() {
    for (const Sweep<T>& sweep : sweeps<T>(MathFunction::tanh)) {
      const Key<T> stride = sweep.stride * 64;
      for (std::uint64_t i = 0; i < sweep.count / 64; ++i) {
        const T x = number<T>(sweep.first + static_cast<Key<T>>(i) * stride);
        const T y = evaluate_one(GetParam(), MathFunction::tanh, x);
        ASSERT_TRUE(same(evaluate_one(GetParam(), MathFunction::tanh, -x), -y)) << x;
      }
    }
  }
};

TEST_P(MathLevel, SpecialValuesAreExactFloat) { check_specials<float>(); }
TEST_P(MathLevel, SpecialValuesAreExactDouble) { check_specials<double>(); }
TEST_P(MathLevel, TailsEqualTheBodyFloat) { check_tails<float>(); }
TEST_P(MathLevel, TailsEqualTheBodyDouble) { check_tails<double>(); }
TEST_P(MathLevel, TanhIsOddFloat) { check_odd<float>(); }
TEST_P(MathLevel, TanhIsOddDouble) { check_odd<double>(); }

INSTANTIATE_TEST_SUITE_P(, MathLevel, testing::ValuesIn(kLevels),
                         [](const auto& test) { return fovea::name(test.param); });

/// v3 and v4 give the same bits.
class MathBits : public testing::TestWithParam<MathFunction> {
 protected:
  template <class T>
  void check() {
    FOVEA_SKIP_WITHOUT(IsaLevel::v3);
    FOVEA_SKIP_WITHOUT(IsaLevel::v4);
    const MathFunction f = GetParam();
    std::atomic<std::uint64_t> differences{0};
    for (const Sweep<T>& sweep : sweeps<T>(f)) {
      for_each_block((sweep.count + kBlock - 1) / kBlock, [&](std::uint64_t b) {
        std::array<T, kBlock> x, y3, y4;
        const std::uint64_t first = b * kBlock;
        const std::uint64_t count = std::min(kBlock, sweep.count - first);
        for (std::uint64_t i = 0; i < count; ++i)
          x[i] = number<T>(sweep.first + static_cast<Key<T>>(first + i) * sweep.stride);
        evaluate_at<T>(IsaLevel::v3)(f, x.data(), y3.data(), static_cast<Index>(count));
        evaluate_at<T>(IsaLevel::v4)(f, x.data(), y4.data(), static_cast<Index>(count));
        std::uint64_t different = 0;
        for (std::uint64_t i = 0; i < count; ++i) different += !same(y3[i], y4[i]);
        differences += different;
      });
    }
    EXPECT_EQ(differences, 0u);
  }
};

TEST_P(MathBits, SameAtV3AndV4Float) { check<float>(); }
TEST_P(MathBits, SameAtV3AndV4Double) { check<double>(); }

INSTANTIATE_TEST_SUITE_P(, MathBits, testing::ValuesIn(kFunctions),
                         [](const auto& test) { return name(test.param); });

}  // namespace
