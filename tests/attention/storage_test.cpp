// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED LEVELS)
/// \file
/// Tensors of 16 bits: the result equals, bit for bit, that of the float tile kernel for the same
/// numbers, rounded once to nearest even; for drawn calls of any shape, strides, options and
/// threads at every level, and for every kind of Eigen tensor. lse is a float, and the float
/// kernel's. At level v4_bf16, which rounds the weights of bfloat16 tensors, the result is that
/// within the error of these roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "attention/decoding.hpp"
#include "attention/dominant_fill.hpp"
#include "fuzz/drawn_problem.hpp"

namespace fovea_test::attention_storage {

static_assert(fovea::Attention<FullAttention, Eigen::bfloat16>);
static_assert(fovea::Attention<LocalAttention, Eigen::half>);
// Gradients are of float and double.
static_assert(!fovea::DifferentiableAttention<FullAttention, Eigen::bfloat16>);
static_assert(!fovea::DifferentiableAttention<LocalAttention, Eigen::half>);
static_assert(std::is_same_v<decltype(AllInputs<Eigen::half>::bias), View<const float>>);
static_assert(std::is_same_v<decltype(AllSaved<Eigen::bfloat16>::lse), View<float>>);

/// x as S, in some layout, and then x is that, too.
template <class S>
Tensor<S> narrowed(const Tensor<float>& x, const Layout& layout) {
  Tensor<S> made(x.shape(), layout);
  made.fill([&](Index b, Index h, Index n, Index d) { return static_cast<S>(x(b, h, n, d)); });
  x.fill([&](Index b, Index h, Index n, Index d) { return static_cast<float>(made(b, h, n, d)); });
  return made;
}

/// The inputs of one call, and the same numbers as floats.
template <class S>
struct Stored {
  explicit Stored(Problem<float> of, const Layout& of_q = {}, const Layout& of_k = {},
                  const Layout& of_v = {})
      : floats(std::move(of)),
        q(narrowed<S>(floats.q, of_q)),
        k(narrowed<S>(floats.k, of_k)),
        v(narrowed<S>(floats.v, of_v)) {}
  explicit Stored(const AttentionShape& s) : Stored(make_problem(Case<float>{}, s)) {}

  AllInputs<S> inputs() const {
    return floats.inputs().template with_tensors<S>(q.view(), k.view(), v.view());
  }
  /// With an option, without which the kernel of floats has another form for bands of few keys.
  AllInputs<float> float_inputs() const {
    static constexpr bool visible = true;
    AllInputs<float> in = floats.inputs();
    if (in.mask.empty()) in.mask = View<const bool>(&visible, {1, 1, 1, 1});
    return in;
  }

  Problem<float> floats;
  Tensor<S> q, k, v;
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

/// Whether there is level v4_bf16, which no test has unless it asks for it.
bool has_rounded_weights() {
  if (first_isa_level() < IsaLevel::v4) return false;
  const AtLevel at(IsaLevel::v4_bf16);
  return rounds_weights<Eigen::bfloat16>();
}

/// Calls f() once at each level; for bfloat16, also at v4_bf16.
template <class S, class F>
void at_each_level_of(F&& f) {
  at_each_level(f);
  if (!std::is_same_v<S, Eigen::bfloat16> || !has_rounded_weights()) return;
  const AtLevel at(IsaLevel::v4_bf16);
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
  constexpr double of_logits = 1e-4;      // the rounding of drawn logits in float, relative
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
void expect_rounded(const Op& op, const Stored<S>& problem, const AllInputs<S>& inputs,
                    const AllInputs<float>& float_inputs, const Layout& layout = {},
                    AnyExecutor* executor = nullptr) {
  const Shape out_shape = problem.floats.out_shape();
  const Tensor<S> out(out_shape, layout);
  const Tensor<float> lse(problem.floats.row_shape(), layout);
  const Tensor<float> float_out(out_shape), float_lse(lse.shape());
  on_executor(executor,
              [&](auto&& on) { op.forward(inputs, out.view(), AllSaved<S>{lse.view()}, on); });
  op.forward(float_inputs, float_out.view(), AllSaved<float>{float_lse.view()});
  if (rounds_weights<S>()) {
    const std::vector<float> sizes = sums_of_sizes(op, float_inputs, out_shape);
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

template <class S>
class StorageOf : public testing::Test {};
using ShortTypes = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(StorageOf, ShortTypes, );

/// A call of any size, with any options, strides and threads; all tensors may end at guard pages.
/// As in decoding, it has few rows in one of three.
template <class S, class Op>
void expect_drawn_rounded(Bytes& bytes, Op op) {
  Case<float> with_options;
  with_options.extras = drawn_extras(bytes);
  with_options.options = op.softmax_options();
  Problem<float> floats = drawn_problem(bytes, with_options);
  if (bytes.once_in(3)) {
    static const std::vector<Index> widths = {8, 16, 32, 48, 64, 96, 128, 192};
    floats = make_problem(with_options, {1, 2, 1, bytes(1, 5), bytes(1, 300),
                                         drawn_of(bytes, widths), drawn_width(bytes)});
  }
  if (op.options.scale) {
    *op.options.scale /= std::sqrt(1.0 + static_cast<double>(floats.shape.width));
  }
  const Layout of_q = drawn_input_layout(bytes);
  const Layout of_k = drawn_input_layout(bytes);
  const Stored<S> problem(std::move(floats), of_q, of_k, drawn_input_layout(bytes));
  SCOPED_TRACE(std::string(op.name()) + ": " + describe(problem.floats));
  AnyExecutor executor = drawn_executor(bytes);
  const Layout of_out = drawn_layout(bytes);
  at_each_level_of<S>([&] {
    expect_rounded(op, problem, problem.inputs(), problem.float_inputs(), of_out, &executor);
  });
}

TYPED_TEST(StorageOf, RoundsTheFloatResult) {
  using S = TypeParam;
  each_drawn(800, 1, [](std::span<const std::uint8_t> data) {
    Bytes bytes(data);
    switch (bytes(0, 3)) {
      case 0:
        return expect_drawn_rounded<S>(bytes, drawn_full(bytes));
      case 1:
        return expect_drawn_rounded<S>(bytes, drawn_local(bytes));
      case 2:
        return expect_drawn_rounded<S>(bytes, drawn_strided(bytes));
      default:
        return expect_drawn_rounded<S>(bytes, FullAttention{{.causal = bytes.once_in(2)}});
    }
  });
}

/// Where v4_bf16 is missing, this test is skipped, and the others leave that level out.
TEST(Storage, WeightsAreRoundedAtTheirLevel) {
  if (!has_rounded_weights()) GTEST_SKIP() << "no level v4_bf16";
  const AtLevel at(IsaLevel::v4_bf16);
  const Stored<Eigen::bfloat16> problem(sizes(20, 300, 64, 64));
  const Tensor<Eigen::bfloat16> out(problem.floats.out_shape());
  const Tensor<float> float_out(out.shape());
  FullAttention{}.forward(problem.inputs(), out.view());
  FullAttention{}.forward(problem.float_inputs(), float_out.view());
  EXPECT_FALSE(all_rounded(out.values(), float_out.values()));
}

/// Over several segments of keys.
TYPED_TEST(StorageOf, RoundsTheFloatResultOfManyKeys) {
  at_each_level_of<TypeParam>([] {
    const Stored<TypeParam> problem(sizes(3, fovea::kKeySegment + 200, 16, 16));
    for (const bool causal : {false, true}) {
      expect_rounded(FullAttention{{.causal = causal}}, problem, problem.inputs(),
                     problem.float_inputs());
    }
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
    const Stored<TypeParam> problem(AttentionShape{1, 2, 1, 90, 90, 64, 20});
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
  const Stored<S> clean(sizes(queries, 90, 16, 16)), dirty(sizes(queries, 90, 16, 16));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (Index d = 0; d < 16; ++d) {
    dirty.k(0, 0, key, d) = dirty.v(0, 0, key, d) = S(nan);
    dirty.floats.k(0, 0, key, d) = dirty.floats.v(0, 0, key, d) = nan;
  }
  const Tensor<S> expected(clean.floats.out_shape()), got(clean.floats.out_shape());
  const Tensor<float> float_got(clean.floats.out_shape());
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
      const Stored<S> problem(sizes(5, 1, 3, 20));
      problem.v.fill([&](Index, Index, Index, Index) { return value; });
      const Tensor<S> out(problem.floats.out_shape());
      FullAttention{}.forward(problem.inputs(), out.view());
      for (const S x : out.values()) {
        EXPECT_EQ(std::bit_cast<std::uint16_t>(x), std::bit_cast<std::uint16_t>(value)) << x;
      }
    }
  });
}

/// Steps of `chunk` tokens, over a cache of the same storage, give the bits of one forward pass.
template <class S, class Op>
void expect_steps_equal_forward(const Op& op, Index tokens, Index chunk, Index width = 27) {
  SCOPED_TRACE(chunk);
  const AttentionShape shape{2, 4, 2, tokens, tokens, width, width - 8};
  const TokenTensors<S> decoded(shape), expected(shape);
  auto decoder = op.template decoder<S>(decoded.decoder_shape());
  decoded.decode(decoder, {chunk});
  expected.forward(op, 0, tokens);
  EXPECT_TRUE(same_results(decoded, expected));
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
std::vector<float> attend_with(const Stored<fovea::Scalar<X>>& problem, X& q, X& k, X& v) {
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
  const Stored<S> problem(sizes(20, 70, 9, 13));
  const Tensor<float> expected(problem.floats.out_shape());
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
