// SPDX-License-Identifier: MIT
/// \file
/// The kernels of linear attention against loops over pairs, at every level: any sizes, maps,
/// policies and layouts; and by bits: any division of sequences, single rows, v3 and v4, and NaN in
/// memory that must not be read.
#include "fovea/kernels/linear/linear.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "fovea/kernels/linear/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/scratch.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_linear_linear {

using fovea::DenominatorPolicy;
using fovea::FeatureMapKind;
using fovea::kLinearChunk;
using fovea::kLinearSegment;
using fovea::kStateSegment;
using fovea::LinearShape;
using enum fovea::FeatureMapKind;

/// Heads of queries that share a head of keys. Row r is the query at position first + r.
struct Sizes {
  Index heads = 1;
  Index tokens = 70;
  Index rows = 70;
  Index first = 0;
  Index width = 8;
  Index value_width = 8;
  std::vector<FeatureMapKind> maps = {elu_plus_one};
  DenominatorPolicy policy = DenominatorPolicy::propagate;
  double floor = 0;
  bool blended = false;
  Index column = 1;   // stride of q, k, v and out
  double spread = 1;  // of q and k
  double offset = 0;  // added to them
  bool constant = false;
};

template <class T>
void cube(const T* x, T* y, Index n) noexcept {
  for (Index i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i];
}

template <class T>
class Call {
 public:
  explicit Call(const Sizes& sizes)
      : s_(sizes),
        q({1, s_.heads, s_.rows, s_.width}, layout()),
        k({1, 1, s_.tokens, s_.width}, layout()),
        v({1, 1, s_.tokens, s_.value_width}, layout()),
        near_field({1, s_.heads, s_.rows, s_.value_width}, layout()),
        shape_{static_cast<Index>(s_.maps.size()), s_.width, s_.value_width} {
    const auto feature = [&](std::uint64_t seed) -> Fill {
      if (s_.constant) return constant(s_.offset);
      return [this, fill = gaussian(seed, s_.spread)](Index b, Index h, Index n, Index d) {
        return fill(b, h, n, d) + s_.offset;
      };
    };
    q.fill(feature(1));
    k.fill(feature(2));
    v.fill(s_.constant ? constant(0.7) : gaussian(3));
    near_field.fill(gaussian(4));
    for (const FeatureMapKind kind : s_.maps) maps_.push_back({kind, &cube<T>, nullptr});
    for (Index c = 0; c < s_.value_width; ++c) {
      near_weight_.push_back(static_cast<T>(0.2 + 0.01 * static_cast<double>(c)));
      far_weight_.push_back(static_cast<T>(0.9 - 0.01 * static_cast<double>(c)));
    }
  }

  /// Tokens in steps of `step`, rows read as soon as their last token is there.
  std::vector<T> causal(Index step) const {
    const Tensor<T> out = no_output();
    const Scratch<T> state(fovea::linear_state_elements<T>(shape_));
    const Scratch<T> scratch(fovea::linear_stream_scratch<T>(shape_));
    Index row = 0;
    Index begin = 0;
    do {
      const Index end = std::min(begin + step, s_.tokens);
      const Index rows_end =
          end == s_.tokens ? s_.rows : std::clamp<Index>(end - s_.first, row, s_.rows);
      stream(begin, end, row, rows_end, out, state, scratch);
      row = rows_end;
      begin = end;
    } while (begin < s_.tokens);
    EXPECT_EQ(out.changed_gaps(), 0);
    return out.values();
  }

  /// All tokens, then rows [begin, end) alone.
  std::vector<T> causal_rows(Index begin, Index end) const {
    const Tensor<T> out = no_output();
    const Scratch<T> state(fovea::linear_state_elements<T>(shape_));
    const Scratch<T> scratch(fovea::linear_stream_scratch<T>(shape_));
    const Index before = std::clamp<Index>(s_.first + begin, 0, s_.tokens);
    stream(0, before, 0, 0, out, state, scratch);
    stream(before, s_.tokens, begin, end, out, state, scratch);
    return out.values();
  }

  std::vector<T> full() const {
    const Tensor<T> out = no_output();
    const Index elements = fovea::linear_sum_elements<T>(shape_);
    const Index segments = std::max<Index>(1, (s_.tokens + kLinearSegment - 1) / kLinearSegment);
    const Scratch<T> sums(segments * elements);
    const Scratch<T> scratch(
        std::max(fovea::linear_sum_scratch<T>(shape_), fovea::linear_read_scratch<T>(shape_)));
    for (Index n = 0; n < segments; ++n) {
      fovea::LinearSumArgs<T> args;
      args.k = matrix<fovea::StoredMatrix<>>(k, 0, n * kLinearSegment);
      args.v = matrix<fovea::StoredMatrix<>>(v, 0, n * kLinearSegment);
      args.width = s_.width;
      args.value_width = s_.value_width;
      args.maps = maps();
      args.tokens = std::min(kLinearSegment, s_.tokens - n * kLinearSegment);
      args.sums = sums.data() + n * elements;
      args.scratch = scratch.data();
      fovea::LinearKernels<T>{}.sum(args);
    }
    fovea::LinearKernels<T>{}.fold({sums.data(), segments, elements, sums.data()});
    for (Index h = 0; h < s_.heads; ++h) {
      fovea::LinearReadArgs<T> args;
      args.rows = rows_of(h, 0, out);
      args.row_count = s_.rows;
      args.width = s_.width;
      args.value_width = s_.value_width;
      args.maps = maps();
      args.total = sums.data();
      args.scratch = scratch.data();
      fovea::LinearKernels<T>{}.read(args);
    }
    EXPECT_EQ(out.changed_gaps(), 0);
    return out.values();
  }

  Reference<T> expected(bool causal) const;

  const Sizes& sizes() const { return s_; }

 private:
  Sizes s_;

 public:
  Tensor<T> q, k, v, near_field;

 private:
  using W = Wide<T>;

  Layout layout() const {
    Layout layout;
    layout.innermost = s_.column;
    layout.gap = s_.column - 1;
    return layout;
  }
  Tensor<T> no_output() const {
    return Tensor<T>({1, s_.heads, s_.rows, s_.value_width}, layout());
  }

  template <class Matrix>
  static Matrix matrix(const Tensor<T>& x, Index h, Index row) {
    const auto strides = x.view().strides();
    return {x.shape()[2] == 0 ? nullptr : &x(0, h, row, 0), strides[2], strides[3]};
  }

  fovea::LinearMaps<T> maps() const {
    return {maps_.data(), static_cast<Index>(maps_.size()), s_.policy, static_cast<T>(s_.floor)};
  }

  fovea::LinearRows<T> rows_of(Index h, Index row, const Tensor<T>& out) const {
    fovea::LinearRows<T> rows;
    rows.q = matrix<fovea::StoredMatrix<>>(q, h, row);
    rows.out = matrix<fovea::OutputMatrix<>>(out, h, row);
    if (s_.blended) {
      rows.near_field = {&near_field(0, h, row, 0), near_field.view().strides()[2],
                         near_field.view().strides()[3]};
      rows.near_weight = near_weight_.data();
      rows.far_weight = far_weight_.data();
    }
    return rows;
  }

  void stream(Index begin, Index end, Index row, Index rows_end, const Tensor<T>& out,
              const Scratch<T>& state, const Scratch<T>& scratch) const {
    std::vector<fovea::LinearRows<T>> rows;
    for (Index h = 0; h < s_.heads; ++h) {
      rows.push_back(row < rows_end ? rows_of(h, row, out) : fovea::LinearRows<T>{});
    }
    fovea::LinearStreamArgs<T> args;
    if (begin < end) {
      args.k = matrix<fovea::StoredMatrix<>>(k, 0, begin);
      args.v = matrix<fovea::StoredMatrix<>>(v, 0, begin);
    }
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.maps = maps();
    args.length = begin;
    args.tokens = end - begin;
    args.rows = rows.data();
    args.heads = s_.heads;
    args.row_count = rows_end - row;
    args.first_position = s_.first + row;
    args.state = state.data();
    args.scratch = scratch.data();
    fovea::LinearKernels<T>{}.stream(args);
  }

  std::vector<fovea::FeatureMapArgs<T>> maps_;
  std::vector<T> near_weight_, far_weight_;
  LinearShape shape_;
};

template <class W>
W phi(FeatureMapKind kind, W x) {
  switch (kind) {
    case elu_plus_one:
      return x < 0 ? std::exp(x) : x + 1;
    case elu_minus_plus_one:
      return x > 0 ? std::exp(-x) : 1 - x;
    case tanh_plus_one:
      return 2 / (1 + std::exp(-2 * x));
    case FeatureMapKind::tanh:
      return std::tanh(x);
    case relu:
      return std::max<W>(0, x);
    case own:
      return x * x * x;
    case identity:
      break;
  }
  return x;
}

/// What a row of one map reads: per column the numerator and the sum of its terms' sizes.
template <class W>
struct Terms {
  std::vector<W> numerator, numerator_size;
  W denominator = 0;
  W denominator_size = 0;  // over pairs
  W normaliser_size = 0;   // over features: what signed_floor takes
};

/// Successive rows, from running sums, so that long sequences take linear time.
template <class T>
Reference<T> Call<T>::expected(bool causal) const {
  const Index dv = s_.value_width;
  const auto count = as_size(s_.heads * s_.rows * dv);
  Reference<T> all;
  all.shape = {1, s_.heads, s_.rows, dv};
  all.value.resize(count);
  all.gauge.resize(count);
  for (const FeatureMapKind kind : s_.maps) {
    std::vector<W> state(as_size(s_.width * dv)), size(state), z(as_size(s_.width)), z_size(z);
    Index token = 0;
    for (Index r = 0; r < s_.rows; ++r) {
      const Index seen = causal ? std::clamp<Index>(s_.first + r + 1, 0, s_.tokens) : s_.tokens;
      for (; token < seen; ++token) {
        for (Index d = 0; d < s_.width; ++d) {
          const W f = phi<W>(kind, k(0, 0, token, d));
          z[as_size(d)] += f;
          z_size[as_size(d)] += std::abs(f);
          for (Index c = 0; c < dv; ++c) {
            state[as_size(d * dv + c)] += f * v(0, 0, token, c);
            size[as_size(d * dv + c)] += std::abs(f * static_cast<W>(v(0, 0, token, c)));
          }
        }
      }
      for (Index h = 0; h < s_.heads && seen > 0; ++h) {
        Terms<W> t;
        t.numerator.resize(as_size(dv));
        t.numerator_size.resize(as_size(dv));
        for (Index d = 0; d < s_.width; ++d) {
          const W f = phi<W>(kind, q(0, h, r, d));
          t.denominator += f * z[as_size(d)];
          t.denominator_size += std::abs(f) * z_size[as_size(d)];
          t.normaliser_size += std::abs(f * z[as_size(d)]);
          for (Index c = 0; c < dv; ++c) {
            t.numerator[as_size(c)] += f * state[as_size(d * dv + c)];
            t.numerator_size[as_size(c)] += std::abs(f) * size[as_size(d * dv + c)];
          }
        }
        W den = t.denominator;
        if (s_.policy == DenominatorPolicy::signed_floor) {
          den = std::max(std::abs(den), static_cast<W>(s_.floor) * t.normaliser_size);
          if (t.denominator < 0) den = -den;
        }
        if (s_.policy == DenominatorPolicy::zero_row && den == 0) continue;
        for (Index c = 0; c < dv; ++c) {
          const auto i = as_size((h * s_.rows + r) * dv + c);
          all.value[i] += t.numerator[as_size(c)] / den;
          all.gauge[i] +=
              (t.numerator_size[as_size(c)] + std::abs(t.numerator[as_size(c)] / den) *
                                                  (t.denominator_size - std::abs(t.denominator))) /
              std::abs(den);
        }
      }
    }
  }
  if (!s_.blended) return all;
  for_each_index(all.shape, [&](Index, Index h, Index r, Index c) {
    const auto i = as_size((h * s_.rows + r) * dv + c);
    const W far_field = far_weight_[as_size(c)];
    const W other = static_cast<W>(near_weight_[as_size(c)]) * near_field(0, h, r, c);
    all.value[i] = far_field * all.value[i] + other;
    all.gauge[i] = far_field * all.gauge[i] + std::abs(other);
  });
  return all;
}

std::string text(const Sizes& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.tokens) + " tokens, " +
         std::to_string(s.rows) + " rows from " + std::to_string(s.first) + ", D " +
         std::to_string(s.width) + ", Dv " + std::to_string(s.value_width) + ", map " +
         std::to_string(static_cast<int>(s.maps[0]));
}

template <class T>
class LinearAttention : public testing::Test {
 protected:
  static constexpr double kBound = 16;

  static void check(const Sizes& sizes, double bound = kBound) {
    SCOPED_TRACE(text(sizes));
    const Call<T> call(sizes);
    const Reference<T> causal = call.expected(true);
    const Reference<T> full = call.expected(false);
    at_each_level([&] {
      EXPECT_TRUE(within_ratio(call.causal(sizes.tokens), causal, bound));
      EXPECT_TRUE(within_ratio(call.full(), full, bound));
    });
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearAttention, Scalars);

TYPED_TEST(LinearAttention, AnyWidth) {
  for (const Index width : {1, 2, 5, 16, 31, 64, 65, 128}) {
    for (const Index value_width : {1, 3, 16, 33, 64, 80}) {
      this->check({.tokens = 75, .rows = 75, .width = width, .value_width = value_width});
    }
  }
}

TYPED_TEST(LinearAttention, AnyLength) {
  for (Index n = 1; n < 3 * kLinearChunk; n += 5) this->check({.tokens = n, .rows = n});
  for (const Index n : {kStateSegment - 1, kStateSegment, kStateSegment + 1, kLinearSegment + 1,
                        2 * kStateSegment + kLinearChunk}) {
    this->check({.tokens = n, .rows = n, .width = 4, .value_width = 3});
  }
}

TYPED_TEST(LinearAttention, RowsBeforeAndAfterTheTokens) {
  for (const Index first : {-40, -1, 3, 35}) {
    for (const Index rows : {1, 7, 100}) {
      this->check({.heads = 2, .tokens = 50, .rows = rows, .first = first});
      this->check({.tokens = 50, .rows = rows, .first = first, .blended = true});
    }
  }
}

TYPED_TEST(LinearAttention, EveryMapAndPolicy) {
  const std::vector<FeatureMapKind> kinds = {
      elu_plus_one, elu_minus_plus_one, tanh_plus_one, FeatureMapKind::tanh, relu, own};
  for (const FeatureMapKind kind : kinds) {
    for (const Index width : {3, 17}) {
      Sizes sizes = {.tokens = 70, .rows = 70, .width = width, .maps = {kind}};
      if (kind == relu || kind == own || kind == FeatureMapKind::tanh) sizes.offset = 1;
      this->check(sizes);
      sizes.policy = DenominatorPolicy::signed_floor;
      sizes.floor = 0.01;
      this->check(sizes);
      sizes.offset = -0.5;
      if (kind != relu) this->check(sizes);
    }
  }
  this->check({.heads = 3, .maps = {elu_plus_one, elu_minus_plus_one, tanh_plus_one}});
  this->check({.maps = {tanh_plus_one, elu_plus_one}, .blended = true});
}

/// With relu and negative features the denominators are 0.
TYPED_TEST(LinearAttention, ZeroDenominators) {
  for (const bool blended : {false, true}) {
    Sizes sizes = {.maps = {relu, elu_plus_one}, .blended = blended, .spread = 0.5, .offset = -3};
    sizes.policy = DenominatorPolicy::zero_row;
    this->check(sizes);
  }
  Sizes sizes = {.maps = {relu}, .spread = 0.5, .offset = -3};
  at_each_level([&] {
    for (const TypeParam x : Call<TypeParam>(sizes).causal(70)) ASSERT_TRUE(std::isnan(x));
    sizes.policy = DenominatorPolicy::zero_row;
    const auto rows = Call<TypeParam>(sizes).full();
    EXPECT_TRUE(same_bits(rows, std::vector<TypeParam>(rows.size())));
    sizes.policy = DenominatorPolicy::propagate;
  });
}

/// Features far from 1: as small as 1e-30, and as large as 1e4 and their products with them.
TYPED_TEST(LinearAttention, FarFeatures) {
  const double small = sizeof(TypeParam) == 4 ? -69 : -600;
  // Rows of 32 features have no gaps.
  for (const Index width : {20, 32}) {
    this->check({.tokens = 40, .rows = 40, .width = width, .offset = small});
  }
  this->check({.tokens = 40, .rows = 40, .width = 20, .maps = {relu}, .offset = 1e4});
  this->check(
      {.tokens = 40, .rows = 40, .maps = {own}, .offset = sizeof(TypeParam) == 4 ? 1e6 : 1e50});
}

TYPED_TEST(LinearAttention, LongConstantSums) {
  const Index n = sizeof(TypeParam) == 4 ? 65536 : 5000;
  for (const double x : {0.1, -2.3}) {
    this->check(
        {.tokens = n, .rows = n, .width = 16, .value_width = 4, .offset = x, .constant = true});
  }
}

TYPED_TEST(LinearAttention, NoTokens) {
  for (const bool blended : {false, true}) {
    this->check({.heads = 2,
                 .tokens = 0,
                 .rows = 5,
                 .policy = DenominatorPolicy::zero_row,
                 .blended = blended});
  }
}

// ---- by bits ------------------------------------------------------------------------------------

template <class T>
class LinearAttentionBits : public LinearAttention<T> {
 protected:
  static const std::vector<Sizes>& cases() {
    static const std::vector<Sizes> all = {
        {.tokens = 100, .rows = 100, .width = 9, .value_width = 5},
        {.heads = 3, .tokens = 100, .rows = 100, .width = 40, .value_width = 64},
        {.tokens = 100, .rows = 130, .first = -10, .maps = {elu_plus_one, tanh_plus_one}},
        {.tokens = 70, .rows = 20, .first = 50, .width = 70, .blended = true, .column = 2},
        {.tokens = 70,
         .rows = 70,
         .maps = {FeatureMapKind::tanh},
         .policy = DenominatorPolicy::signed_floor,
         .floor = 0.1},
        {.tokens = kStateSegment + 40, .rows = kStateSegment + 40, .width = 3, .value_width = 2}};
    return all;
  }
};
TYPED_TEST_SUITE(LinearAttentionBits, Scalars);

TYPED_TEST(LinearAttentionBits, AnyDivisionIntoSteps) {
  at_each_level([&] {
    for (const Sizes& sizes : this->cases()) {
      const Call<TypeParam> call(sizes);
      const auto whole = call.causal(sizes.tokens);
      for (const Index step : {1, 7, 32, 33}) {
        EXPECT_TRUE(same_bits(call.causal(step), whole)) << text(sizes) << ", by " << step;
      }
    }
  });
}

TYPED_TEST(LinearAttentionBits, RowsAlone) {
  at_each_level([&] {
    for (const Sizes& sizes : this->cases()) {
      const Call<TypeParam> call(sizes);
      const auto whole = call.causal(sizes.tokens);
      for (Index begin = std::max<Index>(0, -sizes.first); begin < sizes.rows; begin += 11) {
        const Index end = std::min(sizes.rows, begin + 1 + begin % 5);
        const auto part = call.causal_rows(begin, end);
        for (Index h = 0; h < sizes.heads; ++h) {
          const Index at = (h * sizes.rows + begin) * sizes.value_width;
          const auto n = as_size((end - begin) * sizes.value_width);
          EXPECT_TRUE(same_bits(part.data() + at, whole.data() + at, n,
                                {1, 1, end - begin, sizes.value_width}))
              << text(sizes) << ", from " << begin;
        }
      }
    }
  });
}

/// Each head as if it were alone, and the outputs do not depend on strides.
TYPED_TEST(LinearAttentionBits, StridesAndHeads) {
  at_each_level([&] {
    for (Sizes sizes : this->cases()) {
      const auto whole = Call<TypeParam>(sizes).causal(sizes.tokens);
      const auto full = Call<TypeParam>(sizes).full();
      sizes.column = 4 - sizes.column;
      EXPECT_TRUE(same_bits(Call<TypeParam>(sizes).causal(sizes.tokens), whole)) << text(sizes);
      EXPECT_TRUE(same_bits(Call<TypeParam>(sizes).full(), full)) << text(sizes);
      sizes.heads = 1;  // head 0 is filled with the same numbers
      const auto one = Call<TypeParam>(sizes).causal(sizes.tokens);
      EXPECT_TRUE(
          same_bits(one.data(), whole.data(), one.size(), {1, 1, sizes.rows, sizes.value_width}))
          << text(sizes);
    }
  });
}

TYPED_TEST(LinearAttentionBits, SameAtV3AndV4) {
  if (!has_level(IsaLevel::v4)) GTEST_SKIP() << "no v4";
  for (const Sizes& sizes : this->cases()) {
    const Call<TypeParam> call(sizes);
    const auto both = [&](IsaLevel level) {
      const AtLevel at(level);
      auto all = call.causal(sizes.tokens);
      const auto full = call.full();
      all.insert(all.end(), full.begin(), full.end());
      return all;
    };
    EXPECT_TRUE(same_bits(both(IsaLevel::v3), both(IsaLevel::v4))) << text(sizes);
  }
}

TYPED_TEST(LinearAttentionBits, FutureTokensAreInvisible) {
  constexpr TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  at_each_level([&] {
    for (const Sizes& sizes : this->cases()) {
      const auto clean = Call<TypeParam>(sizes).causal(sizes.tokens);
      for (const Index token : {0, 5, 31, 32, 63, 66}) {
        const Call<TypeParam> call(sizes);
        for (Index n = token; n < sizes.tokens; ++n) {
          call.k(0, 0, n, n % sizes.width) = nan;
          call.v(0, 0, n, n % sizes.value_width) = nan;
        }
        const auto poisoned = call.causal(sizes.tokens);
        const Index seen = std::clamp<Index>(token - sizes.first, 0, sizes.rows);
        for (Index h = 0; h < sizes.heads; ++h) {
          const Index at = h * sizes.rows * sizes.value_width;
          EXPECT_TRUE(same_bits(poisoned.data() + at, clean.data() + at,
                                as_size(seen * sizes.value_width), {1, 1, seen, sizes.value_width}))
              << text(sizes) << ", token " << token;
          for (Index i = seen * sizes.value_width; i < sizes.rows * sizes.value_width; ++i) {
            if (i % sizes.value_width == token % sizes.value_width) {
              ASSERT_TRUE(std::isnan(poisoned[as_size(at + i)])) << text(sizes) << ", " << i;
            }
          }
        }
      }
    }
  });
}

/// Tensors of bfloat16: the results are those of the same numbers in float, rounded once.
TEST(LinearAttentionStorage, Bfloat16) {
  constexpr Index n = 75, width = 20, value_width = 21;
  const auto draw = [](Index count, std::uint64_t seed, std::vector<std::uint16_t>& stored,
                       std::vector<float>& x) {
    for (Index i = 0; i < count; ++i) {
      const auto bits =
          std::bit_cast<std::uint32_t>(static_cast<float>(gaussian(seed)(0, 0, 0, i)));
      stored.push_back(static_cast<std::uint16_t>(bits >> 16));
      x.push_back(std::bit_cast<float>(bits >> 16 << 16));
    }
  };
  std::vector<std::uint16_t> q16, k16, v16, out16(as_size(n * value_width));
  std::vector<float> q, k, v, out(as_size(n * value_width));
  draw(n * width, 1, q16, q);
  draw(n * width, 2, k16, k);
  draw(n * value_width, 3, v16, v);
  const LinearShape shape = {1, width, value_width};
  struct alignas(64) Line {
    float x[16];
  };
  std::vector<Line> state(as_size(fovea::linear_state_elements<float>(shape)) / 16 + 1);
  std::vector<Line> scratch(as_size(fovea::linear_stream_scratch<float>(shape)) / 16 + 1);
  const fovea::FeatureMapArgs<float> map;
  at_each_level([&] {
    const auto run = [&]<fovea::Storage S>(std::integral_constant<fovea::Storage, S>,
                                           const auto& q_data, const auto& k_data,
                                           const auto& v_data, auto& to) {
      fovea::LinearRows<float, S> rows;
      fovea::LinearStreamArgs<float, S> args;
      args.width = width;
      args.value_width = value_width;
      args.maps = {&map, 1};
      args.tokens = n;
      args.rows = &rows;
      args.heads = 1;
      args.row_count = n;
      args.state = state[0].x;
      args.scratch = scratch[0].x;
      rows.q = {q_data.data(), width, 1};
      rows.out = {to.data(), value_width, 1};
      args.k = {k_data.data(), width, 1};
      args.v = {v_data.data(), value_width, 1};
      fovea::LinearKernels<float, S>{}.stream(args);
    };
    using fovea::Storage;
    run(std::integral_constant<Storage, Storage::native>{}, q, k, v, out);
    run(std::integral_constant<Storage, Storage::bfloat16>{}, q16, k16, v16, out16);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(out[i]);
      const auto rounded = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      ASSERT_EQ(out16[i], rounded) << i;
    }
  });
}

}  // namespace fovea_test::kernels_linear_linear
