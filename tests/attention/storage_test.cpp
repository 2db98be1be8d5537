// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LEVELS)
/// \file
/// Tensors of 16 bits: the result equals, bit for bit, that of the float tile kernel for the same
/// numbers, rounded once to nearest even; for any shape, strides, options and level, and for every
/// kind of Eigen tensor. lse is a float, and the float kernel's. At level v4_bf16, which rounds the
/// weights of bfloat16 tensors, the result is that within the error of these roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "attention/dominant_fill.hpp"
#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_storage {

using bench::AllInputs;
using bench::AllSaved;
using fovea::AttentionShape;
using fovea::FullAttention;
using fovea::LocalAttention;

static_assert(fovea::Attention<FullAttention, Eigen::bfloat16>);
static_assert(fovea::Attention<LocalAttention, Eigen::half>);
// Gradients are of float and double.
static_assert(!fovea::DifferentiableAttention<FullAttention, Eigen::bfloat16>);
static_assert(!fovea::DifferentiableAttention<LocalAttention, Eigen::half>);
static_assert(std::is_same_v<decltype(AllInputs<Eigen::half>::bias), View<const float>>);
static_assert(std::is_same_v<decltype(AllSaved<Eigen::bfloat16>::lse), View<float>>);

/// The inputs of one call, and the same numbers as floats.
template <class S>
struct Problem {
  explicit Problem(const AttentionShape& s, const Layout& layout = {})
      : q({s.batch, s.query_heads, s.queries, s.width}, layout),
        k({s.batch, s.key_heads, s.keys, s.width}, layout),
        v({s.batch, s.key_heads, s.keys, s.value_width}, layout),
        float_q(q.shape()),
        float_k(k.shape()),
        float_v(v.shape()) {
    fill(q, float_q, gaussian(1));
    fill(k, float_k, gaussian(2));
    fill(v, float_v, gaussian(3));
  }

  static void fill(const Tensor<S>& x, const Tensor<float>& as_float, const Fill& value) {
    x.fill(
        [&](Index b, Index h, Index n, Index d) { return static_cast<float>(value(b, h, n, d)); });
    as_float.fill(
        [&](Index b, Index h, Index n, Index d) { return static_cast<float>(x(b, h, n, d)); });
  }

  AllInputs<S> inputs() const {
    return {q.view(), k.view(), v.view(), key_lengths, {}, {}, first_positions};
  }
  AllInputs<float> float_inputs() const {
    return {float_q.view(), float_k.view(), float_v.view(), key_lengths, {}, {}, first_positions};
  }
  Shape out_shape() const {
    const Shape& s = q.shape();
    return {s[0], s[1], s[2], v.shape()[3]};
  }
  Shape row_shape() const { return {q.shape()[0], q.shape()[1], q.shape()[2], 1}; }

  Tensor<S> q, k, v;
  Tensor<float> float_q, float_k, float_v;
  std::vector<Index> key_lengths = {};
  std::vector<Index> first_positions = {};
};

/// Whether x is y rounded by Eigen; any NaN equals any NaN.
template <class S>
bool is_rounded(S x, float y) {
  if (std::isnan(y)) return std::isnan(static_cast<float>(x));
  return std::bit_cast<std::uint16_t>(x) == std::bit_cast<std::uint16_t>(S(y));
}

template <class S>
testing::AssertionResult all_rounded(const std::vector<S>& x, const std::vector<float>& y) {
  if (x.size() != y.size()) return testing::AssertionFailure() << x.size() << " elements";
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (is_rounded(x[i], y[i])) continue;
    return testing::AssertionFailure() << "element " << i << ": " << x[i] << " from " << y[i];
  }
  return testing::AssertionSuccess();
}

/// Whether this level rounds the weights of tensors of S to bfloat16.
template <class S>
bool rounds_weights() {
  return std::is_same_v<S, Eigen::bfloat16> && fovea::isa_level() == IsaLevel::v4_bf16;
}

/// Calls f() once at each level; for bfloat16, also at v4_bf16.
template <class S, class F>
void at_each_level_of(F&& f) {
  at_each_level(f);
  if (first_isa_level() < IsaLevel::v4) return;
  const AtLevel at(IsaLevel::v4_bf16);
  if (!rounds_weights<S>()) return;
  SCOPED_TRACE(fovea::name(IsaLevel::v4_bf16));
  f();
}

/// Whether x is y rounded, but for weights rounded to bfloat16 before.
/// \param size the weighted sum of |v|
template <class S>
testing::AssertionResult all_near(const std::vector<S>& x, const std::vector<float>& y,
                                  const std::vector<float>& size) {
  if (x.size() != y.size()) return testing::AssertionFailure() << x.size() << " elements";
  constexpr double half_ulp = 1.0 / 256;  // relative, at most; of a weight and of the result
  constexpr double of_logits = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto got = static_cast<double>(x[i]);
    if (std::isnan(y[i]) ? std::isnan(got) : got == static_cast<double>(y[i])) continue;
    const double bound = half_ulp * (std::abs(y[i]) + 1.01 * size[i]) + of_logits * size[i];
    if (std::abs(got - y[i]) <= bound) continue;
    return testing::AssertionFailure() << "element " << i << ": " << x[i] << " from " << y[i];
  }
  return testing::AssertionSuccess();
}

/// The weighted sums of |v|.
template <class Op>
std::vector<float> sums_of_sizes(const Op& op, AllInputs<float> inputs, const Shape& out_shape) {
  const Tensor<float> sizes(inputs.v.shape()), out(out_shape);
  sizes.fill([&](Index b, Index h, Index n, Index d) { return std::abs(inputs.v(b, h, n, d)); });
  inputs.v = sizes.view();
  op.forward(inputs, out.view());
  return out.values();
}

/// out and lse of one call, in two types. \param layout of out
template <class Op, class S>
void expect_rounded(const Op& op, const Problem<S>& problem, const AllInputs<S>& inputs,
                    const AllInputs<float>& float_inputs, const Layout& layout = {}) {
  const Tensor<S> out(problem.out_shape(), layout);
  const Tensor<float> lse(problem.row_shape(), layout);
  const Tensor<float> float_out(problem.out_shape());
  const Tensor<float> float_lse(problem.row_shape());
  op.forward(inputs, out.view(), AllSaved<S>{lse.view()});
  op.forward(float_inputs, float_out.view(), AllSaved<float>{float_lse.view()});
  if (rounds_weights<S>()) {
    const std::vector<float> sizes = sums_of_sizes(op, float_inputs, problem.out_shape());
    EXPECT_TRUE(all_near(out.values(), float_out.values(), sizes));
    for_each_index(lse.shape(), [&](Index b, Index h, Index n, Index d) {
      const float expected = float_lse(b, h, n, d);
      EXPECT_TRUE(lse(b, h, n, d) == expected ||
                  std::abs(lse(b, h, n, d) - expected) <= 1e-5F * (1 + std::abs(expected)));
    });
  } else {
    EXPECT_TRUE(all_rounded(out.values(), float_out.values()));
    EXPECT_TRUE(same_bits(lse.values(), float_lse.values()));
  }
  EXPECT_EQ(out.changed_gaps() + lse.changed_gaps(), 0);
}

template <class Op, class S>
void expect_rounded(const Op& op, const Problem<S>& problem, const Layout& layout = {}) {
  expect_rounded(op, problem, problem.inputs(), problem.float_inputs(), layout);
}

/// Every pattern: more than 32 keys wide, since float has a separate kernel for narrow bands.
template <class S>
void expect_rounded_by_every_pattern(const Problem<S>& problem, const Layout& layout = {}) {
  expect_rounded(FullAttention{}, problem, layout);
  expect_rounded(FullAttention{{.causal = true}}, problem, layout);
  expect_rounded(LocalAttention{{.left = 40, .right = 9}}, problem, layout);
}

AttentionShape sizes(Index queries, Index keys, Index width, Index value_width) {
  return {1, 1, 1, queries, keys, width, value_width};
}

template <class S>
class StorageOf : public testing::Test {};
using ShortTypes = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(StorageOf, ShortTypes, );

TYPED_TEST(StorageOf, RoundsTheFloatResultForEveryWidth) {
  at_each_level_of<TypeParam>([] {
    for (Index width = 0; width <= 33; ++width) {
      expect_rounded_by_every_pattern(Problem<TypeParam>(sizes(19, 67, width, 33 - width)));
    }
    for (const Index width : {59, 64, 80, 128}) {
      expect_rounded_by_every_pattern(Problem<TypeParam>(sizes(35, 140, width, width)));
    }
  });
}

TYPED_TEST(StorageOf, RoundsTheFloatResultForEveryLength) {
  at_each_level_of<TypeParam>([] {
    for (const Index queries : {0, 1, 2, 16, 17, 63, 65, 131, 513}) {
      for (const Index keys : {0, 1, 17, 127, 128, 129, 300}) {
        expect_rounded_by_every_pattern(Problem<TypeParam>(sizes(queries, keys, 7, 12)));
      }
    }
    expect_rounded_by_every_pattern(Problem<TypeParam>(sizes(3, fovea::kKeySegment + 200, 16, 16)));
  });
}

/// As in decoding: of whole vectors of columns neighbours are transposed as one element.
TYPED_TEST(StorageOf, RoundsTheFloatResultOfFewRows) {
  at_each_level_of<TypeParam>([] {
    for (const Index queries : {1, 2, 5}) {
      for (const Index width : {8, 16, 32, 48, 64, 96, 128, 192}) {
        for (const Index keys : {67, 300}) {
          for (const Guard guard : {Guard::none, Guard::before, Guard::behind}) {
            const Layout layout{.guard = guard};
            expect_rounded_by_every_pattern(
                Problem<TypeParam>(sizes(queries, keys, width, 24), layout), layout);
          }
        }
      }
      // Several vectors of values at addresses that are not multiples of 4.
      const Layout odd{.offset = 1, .gap = 1};
      expect_rounded_by_every_pattern(Problem<TypeParam>(sizes(queries, 67, 8, 128), odd), odd);
    }
  });
}

TYPED_TEST(StorageOf, RoundsTheFloatResultOfGroupedHeadsAndKeyLengths) {
  at_each_level_of<TypeParam>([] {
    Problem<TypeParam> problem({3, 6, 2, 70, 150, 24, 18});
    expect_rounded_by_every_pattern(problem);
    problem.key_lengths = {150, 0, 41};
    problem.first_positions = {80, 80, 80};
    expect_rounded_by_every_pattern(problem);
    problem.first_positions = {80, -70, -29};
    expect_rounded_by_every_pattern(problem);
  });
}

/// Over lists, predicted keys and chosen ones, which follow from indices and floats.
TYPED_TEST(StorageOf, RoundsTheFloatResultOverSomeKeys) {
  const Tensor<Index> lists({1, 2, 90, 20});
  lists.fill([](Index, Index h, Index i, Index n) { return n < 17 ? 5 * n + (i + h) % 5 : -1; });
  const Tensor<float> dominant({1, 2, 90, 4}), sketch_q({1, 1, 90, 3}), sketch_k({1, 1, 90, 3});
  dominant.fill(dominant_fill(4, 90));
  sketch_q.fill(gaussian(5));
  sketch_k.fill(gaussian(6));
  at_each_level_of<TypeParam>([&] {
    const Problem<TypeParam> problem({1, 2, 1, 90, 90, 64, 20});
    AllInputs<TypeParam> in = problem.inputs();
    AllInputs<float> float_in = problem.float_inputs();
    in.indices = float_in.indices = lists.view();
    in.dominant = float_in.dominant = dominant.view();
    in.sketch_q = float_in.sketch_q = sketch_q.view();
    in.sketch_k = float_in.sketch_k = sketch_k.view();
    expect_rounded(fovea::IndexedAttention{}, problem, in, float_in);
    expect_rounded(fovea::FsatAttention({.max_length = 90}), problem, in, float_in);
    expect_rounded(fovea::SmartBirdAttention({.keys_per_row = 4}), problem, in, float_in);
  });
}

TYPED_TEST(StorageOf, AnyStrides) {
  at_each_level_of<TypeParam>([] {
    for (const auto& order : all_axis_orders()) {
      for (const Index innermost : {1, 2}) {
        Layout layout;
        layout.order = order;
        layout.offset = 3;
        layout.innermost = innermost;
        layout.gap = 1;
        const Problem<TypeParam> problem({2, 2, 1, 37, 133, 19, 21}, layout);
        expect_rounded(FullAttention{{.causal = true}}, problem, layout);
      }
    }
    Layout reversed;
    reversed.reversed = {true, true, true, true};
    expect_rounded(FullAttention{}, Problem<TypeParam>({2, 2, 1, 37, 133, 19, 21}, reversed));
    Layout broadcast;
    broadcast.broadcast = {true, true, false, false};
    expect_rounded(FullAttention{}, Problem<TypeParam>({2, 2, 2, 37, 133, 19, 21}, broadcast));
  });
}

TYPED_TEST(StorageOf, ReadsAndWritesOnlyItsTensors) {
  at_each_level_of<TypeParam>([] {
    for (const Guard guard : {Guard::before, Guard::behind}) {
      for (const Index innermost : {1, 3}) {
        Layout layout;
        layout.innermost = innermost;
        layout.guard = guard;
        for (const Index width : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 64}) {
          const Problem<TypeParam> problem(sizes(19, 131, width, 65 - width), layout);
          expect_rounded(FullAttention{{.causal = true}}, problem, layout);
        }
      }
    }
  });
}

/// Bands of few keys: the float kernel takes its tile form for them only if there is an option.
TYPED_TEST(StorageOf, RoundsTheTileFormOfNarrowBands) {
  at_each_level_of<TypeParam>([] {
    const bool visible = true;
    for (const Index width : {5, 16, 32, 64}) {
      const Problem<TypeParam> problem({1, 2, 1, 150, 150, width, width});
      AllInputs<float> with_mask = problem.float_inputs();
      with_mask.mask = View<const bool>(&visible, {1, 1, 1, 1});
      for (const Index left : {0, 3, 31}) {
        expect_rounded(LocalAttention{{.left = left}}, problem, problem.inputs(), with_mask);
      }
      expect_rounded(LocalAttention{{.left = 7, .right = 8}}, problem, problem.inputs(), with_mask);
    }
  });
}

/// All options at once; their numbers are floats for either type.
TYPED_TEST(StorageOf, RoundsTheFloatResultWithEveryOption) {
  const Problem<TypeParam> problem({1, 4, 2, 90, 170, 21, 18});
  Tensor<float> bias({1, 4, 90, 170});
  bias.fill(gaussian(4));
  Tensor<bool> mask({1, 1, 90, 170});
  mask.fill([](Index, Index, Index i, Index j) { return (3 * i + j) % 7 != 3; });
  const std::vector<float> slopes = {0, 0.25F, -0.125F, 0.5F};
  const std::vector<float> sink = {0.5F, -2, 1, 0};
  const std::vector<Index> cu_seqlens_q = {0, 40, 40, 90};
  const std::vector<Index> cu_seqlens_k = {0, 100, 110, 170};
  const auto with_options = [&](auto inputs) {
    inputs.bias = bias.view();
    inputs.mask = mask.view();
    inputs.alibi_slopes = slopes;
    inputs.sink = sink;
    inputs.cu_seqlens_q = cu_seqlens_q;
    inputs.cu_seqlens_k = cu_seqlens_k;
    return inputs;
  };
  at_each_level_of<TypeParam>([&] {
    for (const bool causal : {false, true}) {
      const FullAttention op{{.causal = causal,
                              .scale = 0.4,
                              .soft_cap = 5.0,
                              .dropout = {.probability = 0.25, .seed = 7}}};
      expect_rounded(op, problem, with_options(problem.inputs()),
                     with_options(problem.float_inputs()));
    }
  });
}

/// Rows in groups of 16, whose numbers of keys are mostly odd.
struct UnevenGroups {
  static fovea::Range keys(Index i) { return {i / 16 % 2, 51 + i / 16 * 7}; }

  bool allows(Index i, Index j) const { return keys(i).begin <= j && j < keys(i).end; }
  Index interval_count() const { return 1; }
  void keys_of(Index i, std::span<fovea::Range> intervals) const { intervals[0] = keys(i); }
  fovea::IntervalPlan<UnevenGroups> plan(const fovea::SequenceShape& shape) const {
    return {*this, shape};
  }
};

/// A NaN key and value reach the rows that they reach among floats, and change no other row.
template <class S, class Op>
void expect_nan_stays(const Op& op, Index queries, Index key) {
  SCOPED_TRACE(testing::Message() << queries << " queries, key " << key);
  const Problem<S> clean(sizes(queries, 90, 16, 16));
  const Problem<S> dirty(sizes(queries, 90, 16, 16));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Index d = 0; d < 16; ++d) {
    dirty.k(0, 0, key, d) = dirty.v(0, 0, key, d) = S(nan);
    dirty.float_k(0, 0, key, d) = dirty.float_v(0, 0, key, d) = nan;
  }
  const Tensor<S> expected(clean.out_shape()), got(clean.out_shape());
  const Tensor<float> float_got(clean.out_shape());
  op.forward(clean.inputs(), expected.view());
  op.forward(dirty.inputs(), got.view());
  op.forward(dirty.float_inputs(), float_got.view());
  for_each_index(got.shape(), [&](Index b, Index h, Index n, Index d) {
    const auto value = static_cast<float>(got(b, h, n, d));
    if (std::isnan(float_got(b, h, n, d))) {
      EXPECT_TRUE(std::isnan(value)) << n;
    } else {
      EXPECT_EQ(value, static_cast<float>(expected(b, h, n, d))) << n;
    }
  });
}

TYPED_TEST(StorageOf, NaNReachesTheRowsThatSeeIt) {
  at_each_level_of<TypeParam>([] {
    for (const Index queries : {90, 3}) {  // the second as in decoding
      for (const Index key : {0, 50, 51, 64, 65, 87, 88, 89}) {
        expect_nan_stays<TypeParam>(fovea::SparseAttention{{.patterns = {UnevenGroups{}}}}, queries,
                                    key);
        expect_nan_stays<TypeParam>(FullAttention{{.causal = true}}, queries, key);
        expect_nan_stays<TypeParam>(LocalAttention{{.left = 40, .right = 9}}, queries, key);
        expect_nan_stays<TypeParam>(LocalAttention{{.left = 1}}, queries, key);
      }
    }
  });
}

/// The rules of rounding at the ends of the range, seen through a whole pass.
TYPED_TEST(StorageOf, ValuesOfEveryMagnitudeAreKept) {
  using S = TypeParam;
  const std::vector<S> values = {S(0.0F), std::numeric_limits<S>::denorm_min(),
                                 std::numeric_limits<S>::min(), S(-1.5F),
                                 std::numeric_limits<S>::infinity()};
  at_each_level_of<TypeParam>([&] {
    for (const S value : values) {
      if (rounds_weights<S>() && value == std::numeric_limits<S>::denorm_min()) continue;
      const Problem<S> problem(sizes(5, 1, 3, 20));
      problem.v.fill([&](Index, Index, Index, Index) { return value; });
      const Tensor<S> out(problem.out_shape());
      FullAttention{}.forward(problem.inputs(), out.view());
      for (const S x : out.values()) {
        EXPECT_EQ(std::bit_cast<std::uint16_t>(x), std::bit_cast<std::uint16_t>(value)) << x;
      }
    }
  });
}

TYPED_TEST(StorageOf, SameBitsOnThreads) {
  using S = TypeParam;
  const Problem<S> problem({1, 2, 1, 1300, 200, 16, 16});
  const Tensor<S> serial(problem.out_shape());
  const Tensor<S> threaded(problem.out_shape());
  FullAttention{}.forward(problem.inputs(), serial.view());
  fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  FullAttention{}.forward(problem.inputs(), threaded.view(), threads);
  for_each_index(serial.shape(), [&](Index b, Index h, Index n, Index d) {
    EXPECT_TRUE(is_rounded(serial(b, h, n, d), static_cast<float>(threaded(b, h, n, d))));
  });
}

/// Rows [first, first + count) of a view.
template <class T>
View<T> rows_of(const View<T>& x, Index first, Index count) {
  Shape shape = x.shape();
  shape[2] = count;
  return {x.data() + first * x.strides()[2], shape, x.strides()};
}

/// Steps of `chunk` tokens, over a cache of the same storage, give the bits of one forward pass.
template <class S, class Op>
void expect_steps_equal_forward(const Op& op, Index tokens, Index chunk, Index width = 27) {
  SCOPED_TRACE(chunk);
  const Problem<S> problem({2, 4, 2, tokens, tokens, width, width - 8});
  const Tensor<S> expected(problem.out_shape());
  const Tensor<float> expected_lse(problem.row_shape());
  op.forward(problem.inputs(), expected.view(), AllSaved<S>{expected_lse.view()});
  const Tensor<S> out(problem.out_shape());
  const Tensor<float> lse(problem.row_shape());
  auto decoder = op.template decoder<S>(
      {.batch = 2, .query_heads = 4, .key_heads = 2, .width = width, .value_width = width - 8});
  for (Index n = 0; n < tokens; n += chunk) {
    const Index count = std::min(chunk, tokens - n);
    const AllInputs<S> inputs{rows_of(problem.q.view(), n, count),
                              rows_of(problem.k.view(), n, count),
                              rows_of(problem.v.view(), n, count)};
    decoder.step(inputs, rows_of(out.view(), n, count), AllSaved<S>{rows_of(lse.view(), n, count)});
  }
  EXPECT_TRUE(same_bits(out.values(), expected.values(), out.shape()));
  EXPECT_TRUE(same_bits(lse.values(), expected_lse.values(), lse.shape()));
}

TYPED_TEST(StorageOf, DecodingEqualsForward) {
  using S = TypeParam;
  at_each_level_of<TypeParam>([] {
    for (const Index chunk : {1, 3, 40, 200}) {
      expect_steps_equal_forward<S>(FullAttention{{.causal = true}}, 200, chunk);
      expect_steps_equal_forward<S>(LocalAttention{{.left = 50}}, 200, chunk);
      expect_steps_equal_forward<S>(LocalAttention{{.left = 6}}, 200, chunk);
    }
    for (const Index width : {32, 64, 72, 128}) {
      expect_steps_equal_forward<S>(FullAttention{{.causal = true}}, 150, 1, width);
    }
    expect_steps_equal_forward<S>(FullAttention{{.causal = true}}, fovea::kKeySegment + 70, 1003);
  });
}

TYPED_TEST(StorageOf, CacheNeedsHalfTheMemory) {
  const fovea::DecoderShape shape{.width = 64, .value_width = 64, .reserve = 4096};
  const FullAttention op{{.causal = true}};
  EXPECT_EQ(2 * op.template decoder<TypeParam>(shape).memory_bytes(),
            op.template decoder<float>(shape).memory_bytes());
}

/// `attend` with one kind of Eigen tensor [B, H, N, D], and its result as floats.
template <class X>
std::vector<float> attend_with(const Problem<fovea::Scalar<X>>& problem, X& q, X& k, X& v) {
  using S = fovea::Scalar<X>;
  const auto copy = [](const Tensor<S>& from, const View<S>& to) {
    for_each_index(from.shape(),
                   [&](Index b, Index h, Index n, Index d) { to(b, h, n, d) = from(b, h, n, d); });
  };
  copy(problem.q, q);
  copy(problem.k, k);
  copy(problem.v, v);
  auto out = fovea::attend(FullAttention{}, q, k, v);
  static_assert(std::is_same_v<fovea::Scalar<decltype(out)>, S>);
  const View<S> view = out;
  std::vector<float> all;
  for_each_index(view.shape(), [&](Index b, Index h, Index n, Index d) {
    all.push_back(static_cast<float>(view(b, h, n, d)));
  });
  return all;
}

TYPED_TEST(StorageOf, EveryKindOfEigenTensor) {
  using S = TypeParam;
  using RowMajor = Eigen::Tensor<S, 4, Eigen::RowMajor>;
  using ColMajor = Eigen::Tensor<S, 4>;
  using Matrix = Eigen::Matrix<S, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Problem<S> problem(sizes(20, 70, 9, 13));
  const Tensor<float> expected(problem.out_shape());
  FullAttention{}.forward(problem.float_inputs(), expected.view());
  std::vector<float> rounded;
  for (const float x : expected.values()) rounded.push_back(static_cast<float>(S(x)));

  RowMajor q(1, 1, 20, 9), k(1, 1, 70, 9), v(1, 1, 70, 13);
  EXPECT_TRUE(same_bits(attend_with(problem, q, k, v), rounded));
  Eigen::TensorMap<RowMajor> q_map(q), k_map(k), v_map(v);
  EXPECT_TRUE(same_bits(attend_with(problem, q_map, k_map, v_map), rounded));
  ColMajor q_col(1, 1, 20, 9), k_col(1, 1, 70, 9), v_col(1, 1, 70, 13);
  EXPECT_TRUE(same_bits(attend_with(problem, q_col, k_col, v_col), rounded));
  Matrix q_matrix(20, 9), k_matrix(70, 9), v_matrix(70, 13);
  EXPECT_TRUE(same_bits(attend_with(problem, q_matrix, k_matrix, v_matrix), rounded));
}

}  // namespace fovea_test::attention_storage
