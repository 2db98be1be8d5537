// Every operation of simd/vec.inl.hpp against scalar code, at every level.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "fovea/core/config.hpp"

namespace {

enum class VecOp {
  add,
  subtract,
  multiply,
  divide,
  fused,
  maximum,
  minimum,
  less,
  greater,
  equal,
  choose,
  int_add,
  int_subtract,
  int_and,
  int_or,
  int_not,
  shift_left,
  shift_right,
  square_root,
  int_less,
  int_greater
};

constexpr int kShift = 5;

/// The functions of vec_body.inl.hpp for one level.
template <class T, class Integer>
struct VecOperations {
  int lanes = 0;
  void (*elementwise)(VecOp, const T* a, const T* b, const T* c, T* y, fovea::Index n) = nullptr;
  void (*constants)(T x, const Integer* lanes, T* y) = nullptr;
  void (*pad)(const T* x, T* y, fovea::Index n) = nullptr;
  bool (*any_of)(const Integer* mask) = nullptr;
  void (*pack_lanes)(const T* x, std::uint32_t bits_set, T* y, Integer* integers) = nullptr;
  int wide_lanes = 0;
  void (*widen)(const T* x, double* y, T* squares, fovea::Index n) = nullptr;
};

}  // namespace

#define FOVEA_LEVEL_BODY "simd/vec_body.inl.hpp"
#include "fovea/simd/foreach_level.hpp"

namespace {

using fovea::Index;
using fovea::IsaLevel;

template <class T>
using Signed = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
template <class T>
using Unsigned = std::make_unsigned_t<Signed<T>>;

/// The operations of one level; without lanes where this unit or machine does not have it.
template <class T>
VecOperations<T, Signed<T>> operations_at(IsaLevel level) {
  if (level > fovea::highest_isa_level() || level < fovea::kUnitIsaLevel) return {};
  return FOVEA_AT_LEVEL(level, operations<T>());
}

constexpr bool has_fma([[maybe_unused]] IsaLevel level) {
#if defined(__aarch64__) || defined(__FMA__)
  return true;
#else
  return level != IsaLevel::baseline;
#endif
}

template <class T>
Signed<T> bits(T x) {
  return std::bit_cast<Signed<T>>(x);
}
template <class T>
bool same(T a, T b) {
  return bits(a) == bits(b) || (std::isnan(a) && std::isnan(b));
}

/// The rule for NaN and for zeros of both signs: the second operand, or on AArch64 IEEE's maximum.
template <class T>
T larger(T a, T b) {
#if defined(__aarch64__)
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
#endif
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
#if defined(__aarch64__)
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == b) return std::signbit(a) ? a : b;
#endif
  return a < b ? a : b;
}

template <class T>
T expected(VecOp op, IsaLevel level, T a, T b, T c) {
  const Signed<T> i = bits(a), j = bits(b);
  const auto u = static_cast<Unsigned<T>>(i), v = static_cast<Unsigned<T>>(j);
  const auto from = [](auto x) { return std::bit_cast<T>(x); };
  const auto mask = [](bool set) { return std::bit_cast<T>(Signed<T>{set ? -1 : 0}); };
  switch (op) {
    case VecOp::add:
      return a + b;
    case VecOp::subtract:
      return a - b;
    case VecOp::multiply:
      return a * b;
    case VecOp::divide:
      return a / b;
    case VecOp::fused: {
      const volatile T product = a * b;  // rounded
      return has_fma(level) ? std::fma(a, b, c) : product + c;
    }
    case VecOp::maximum:
      return larger(a, b);
    case VecOp::minimum:
      return smaller(a, b);
    case VecOp::less:
      return mask(a < b);
    case VecOp::greater:
      return mask(a > b);
    case VecOp::equal:
      return mask(a == b);
    case VecOp::choose:
      return a < b ? b : c;
    case VecOp::int_add:
      return from(u + v);
    case VecOp::int_subtract:
      return from(u - v);
    case VecOp::int_and:
      return from(u & v);
    case VecOp::int_or:
      return from(u | v);
    case VecOp::int_not:
      return from(~u);
    case VecOp::shift_left:
      return from(u << kShift);
    case VecOp::shift_right:
      return from(i >> kShift);
    case VecOp::square_root:
      return std::sqrt(a);
    case VecOp::int_less:
      return mask(i < j);
    case VecOp::int_greater:
      return mask(i > j);
  }
  return a;
}

template <class T>
std::vector<T> samples() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> list;
  for (const T x : {T(0), Limits::denorm_min(), Limits::min(), T(1) / 3, T(1), T(2.5), T(1e10),
                    Limits::max(), Limits::infinity(), Limits::quiet_NaN()})
    for (const T sign : {T(1), T(-1)}) list.push_back(sign * x);
  list.push_back(T(1) + Limits::epsilon());
  return list;
}

class VecLevel : public testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    if (operations_at<float>(GetParam()).lanes == 0)
      GTEST_SKIP() << "level " << fovea::name(GetParam()) << " is not in this unit or machine";
  }

  template <class T>
  void check_elementwise() {
    const std::vector<T> list = samples<T>();
    std::vector<T> a, b, c;  // all triples
    for (const T x : list)
      for (const T y : list)
        for (const T z : list) a.push_back(x), b.push_back(y), c.push_back(z);
    ASSERT_NE(a.size() % 16, 0u) << "no tail";
    for (int op = 0; op <= static_cast<int>(VecOp::int_greater); ++op) {
      std::vector<T> y(a.size());
      const auto vec_op = static_cast<VecOp>(op);
      operations_at<T>(GetParam())
          .elementwise(vec_op, a.data(), b.data(), c.data(), y.data(), std::ssize(a));
      for (std::size_t i = 0; i < a.size(); ++i) {
        const T want = expected(vec_op, GetParam(), a[i], b[i], c[i]);
        ASSERT_TRUE(same(y[i], want)) << "operation " << op << " of " << a[i] << ", " << b[i]
                                      << ", " << c[i] << ": " << y[i] << ", not " << want;
      }
    }
  }

  template <class T>
  void check_constants() {
    const auto operations = operations_at<T>(GetParam());
    const auto lanes = static_cast<std::size_t>(operations.lanes);
    std::vector<Signed<T>> integers(lanes);
    for (std::size_t i = 0; i < lanes; ++i) integers[i] = -3 * static_cast<Signed<T>>(i);
    for (const T x : samples<T>()) {
      std::vector<T> y(5 * lanes);
      operations.constants(x, integers.data(), y.data());
      for (std::size_t i = 0; i < lanes; ++i) {
        EXPECT_EQ(bits(y[i]), 0);
        EXPECT_TRUE(same(y[lanes + i], x)) << x;
        EXPECT_EQ(bits(y[2 * lanes + i]), bits(x)) << x;
        EXPECT_EQ(bits(y[3 * lanes + i]), static_cast<Signed<T>>(i));
        EXPECT_EQ(bits(y[4 * lanes + i]), integers[i]);
      }
    }
  }

  /// load_first reads n elements, the rest is +0; store_first writes n.
  template <class T>
  void check_first() {
    const auto operations = operations_at<T>(GetParam());
    for (int n = 0; n < operations.lanes; ++n) {
      const auto count = static_cast<std::size_t>(n);
      const auto lanes = static_cast<std::size_t>(operations.lanes);
      std::vector<T> x(count);  // exactly: a sanitizer sees a read beyond
      for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(i) - T(2.5);
      std::vector<T> padded(lanes, T(7)), sum(lanes + 1, T(7));
      operations.pad(x.data(), padded.data(), n);
      operations.elementwise(VecOp::add, x.data(), x.data(), x.data(), sum.data(), n);
      for (std::size_t i = 0; i < lanes; ++i) {
        EXPECT_TRUE(same(padded[i], i < count ? x[i] : T(0))) << i << " of " << n;
        EXPECT_EQ(sum[i], i < count ? x[i] + x[i] : T(7)) << i << " of " << n;
      }
      EXPECT_EQ(sum[lanes], T(7));
    }
  }

  template <class T>
  void check_any() {
    const auto operations = operations_at<T>(GetParam());
    std::vector<Signed<T>> mask(static_cast<std::size_t>(operations.lanes), 0);
    EXPECT_FALSE(operations.any_of(mask.data()));
    for (Signed<T>& lane : mask) {
      lane = -1;
      EXPECT_TRUE(operations.any_of(mask.data()));
      lane = 0;
    }
  }

  /// Every mask; lanes beyond the selected ones may contain anything.
  template <class T>
  void check_pack() {
    const auto operations = operations_at<T>(GetParam());
    const auto lanes = static_cast<std::size_t>(operations.lanes);
    std::vector<T> x(lanes), packed(lanes);
    std::vector<Signed<T>> integers(lanes);
    for (std::size_t i = 0; i < lanes; ++i) x[i] = static_cast<T>(i) + T(0.5);
    for (std::uint32_t mask = 0; mask < 1u << lanes; ++mask) {
      operations.pack_lanes(x.data(), mask, packed.data(), integers.data());
      std::size_t count = 0;
      for (std::size_t i = 0; i < lanes; ++i) {
        if ((mask >> i & 1) == 0) continue;
        ASSERT_EQ(packed[count], x[i]) << mask;
        ASSERT_TRUE(same(__builtin_bit_cast(T, integers[count++]), x[i])) << mask;
      }
    }
  }

  template <class T>
  void check_wide() {
    const auto operations = operations_at<T>(GetParam());
    const auto lanes = static_cast<std::size_t>(operations.wide_lanes);
    for (std::size_t n = 0; n <= lanes; ++n) {
      std::vector<T> x(n);  // exactly: a sanitizer sees a read beyond
      std::vector<double> wide(lanes, 7);
      std::vector<T> squares(lanes + 1, T(7));
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(i) / 3 - 1;
      operations.widen(x.data(), wide.data(), squares.data(), static_cast<Index>(n));
      for (std::size_t i = 0; i < lanes; ++i) {
        const double expected = i < n ? static_cast<double>(x[i]) : 0;
        EXPECT_EQ(wide[i], expected) << n;
        EXPECT_EQ(squares[i], i < n ? static_cast<T>(expected * expected) : T(7)) << n;
      }
      EXPECT_EQ(squares[lanes], T(7));
    }
  }
};

TEST_P(VecLevel, ElementwiseFloat) { check_elementwise<float>(); }
TEST_P(VecLevel, ElementwiseDouble) { check_elementwise<double>(); }
TEST_P(VecLevel, ConstantsFloat) { check_constants<float>(); }
TEST_P(VecLevel, ConstantsDouble) { check_constants<double>(); }
TEST_P(VecLevel, FirstLanesFloat) { check_first<float>(); }
TEST_P(VecLevel, FirstLanesDouble) { check_first<double>(); }
TEST_P(VecLevel, AnyFloat) { check_any<float>(); }
TEST_P(VecLevel, AnyDouble) { check_any<double>(); }
TEST_P(VecLevel, PackedLanesFloat) { check_pack<float>(); }
TEST_P(VecLevel, PackedLanesDouble) { check_pack<double>(); }
TEST_P(VecLevel, WideFloat) { check_wide<float>(); }
TEST_P(VecLevel, WideDouble) { check_wide<double>(); }

INSTANTIATE_TEST_SUITE_P(, VecLevel,
                         testing::Values(IsaLevel::baseline, IsaLevel::v3, IsaLevel::v4),
                         [](const auto& test) { return fovea::name(test.param); });

}  // namespace
