// SPDX-License-Identifier: MIT
/// \file
/// The kernels of few rows against the block kernel, by bits: any bounds, rows, heads and runs,
/// separate keys for rows; K, V and scratch between guard pages.
#include "fovea/kernels/softmax/row.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fovea/kernels/softmax/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_softmax_row {

using fovea::KeyRows;
using fovea::KeyRun;
using fovea::kKeySegment;
using fovea::QueryBlock;
using fovea::RunSegment;
using fovea::SoftmaxBlockArgs;

/// Rows of some heads that share a key head.
struct Sizes {
  Index heads = 1;
  Index rows = 1;
  Index first_key = 0;  // of the first run
  Index keys = 100;     // of a run
  Index runs = 1;       // neighbours, consecutive if their step is 1
  Index step = 1;
  bool compact = false;  // K and V contain only the keys of the runs
  Index width = 8;
  Index value_width = 8;
  bool bounds = true;   // of each row, drawn
  bool mapped = false;  // soft cap, ALiBi and dropout
  Layout layout = {};   // of K and V
};

/// The arguments of the kernels.
template <class T>
class Call {
 public:
  Call(const Sizes& sizes, Guard guard)
      : s_(sizes),
        q_({1, s_.heads, s_.rows, s_.width}),
        k_({1, 1, key_row_count(), s_.width}, guarded(s_.layout, guard)),
        v_({1, 1, key_row_count(), s_.value_width}, guarded(s_.layout, guard)) {
    q_.fill(gaussian(1));
    k_.fill(gaussian(2));
    v_.fill(gaussian(3));
    bounds_.resize(as_size(2 * s_.runs * s_.rows));
    for (Index r = 0; r < s_.runs; ++r) {
      Index* const lower = bounds_.data() + 2 * r * s_.rows;
      Index* const upper = lower + s_.rows;
      for (Index i = 0; i < s_.rows; ++i) {
        const auto draw = [&](std::uint64_t seed) {
          return static_cast<Index>(hash(seed, i, r, 0, 0) %
                                    static_cast<std::uint64_t>(s_.keys + 1));
        };
        lower[i] = std::min(draw(4), draw(5));
        upper[i] = std::max(draw(6), draw(7));
      }
      runs_.push_back({first_of(r), s_.step, s_.keys, s_.bounds ? lower : nullptr,
                       s_.bounds ? upper : nullptr});
    }
  }

  struct Result {
    Tensor<T> out;
    Tensor<T> lse;
    explicit Result(const Sizes& s)
        : out({1, s.heads, s.rows, s.value_width}), lse({1, s.heads, s.rows, 1}) {}
  };

  Result by_blocks() const {
    Result result(s_);
    std::vector<T> scratch(
        as_size(fovea::softmax_block_scratch(s_.rows, s_.width, s_.value_width)) + 16);
    for (Index h = 0; h < s_.heads; ++h) {
      SoftmaxBlockArgs<T> args = head(h, result);
      args.scratch = scratch.data();
      fovea::SoftmaxKernels<T>{}.block(args);
    }
    return result;
  }

  /// The segments in calls of three, the last ones first.
  Result by_rows(Guard guard) const {
    Result result(s_);
    std::vector<SoftmaxBlockArgs<T>> heads;
    for (Index h = 0; h < s_.heads; ++h) heads.push_back(head(h, result));
    std::vector<RunSegment> segments;
    for (Index r = 0; r < s_.runs; ++r) {
      const Index first = runs_[as_size(r)].first / s_.step;
      for (Index n = first / kKeySegment; n * kKeySegment < first + s_.keys; ++n) {
        segments.push_back({r, n});
      }
    }
    const Index count = static_cast<Index>(segments.size());
    const Index rows = s_.heads * s_.rows;
    const Index part = fovea::softmax_row_part(rows, s_.value_width);
    const Tensor<T> parts({1, 1, count, part}, {.guard = guard});
    const Tensor<T> scratch({1, 1, 1, fovea::softmax_row_scratch(rows, s_.width, s_.value_width)},
                            {.guard = guard});
    const Tensor<T> row({1, 1, 1, fovea::softmax_merge_scratch(s_.value_width)}, {.guard = guard});
    for (Index n = (count - 1) / 3 * 3; n >= 0; n -= 3) {
      fovea::SoftmaxKernels<T>{}.row({heads.data(), s_.heads, block(), segments.data() + n,
                                      std::min<Index>(3, count - n), &parts(0, 0, n, 0),
                                      scratch.view().data()});
    }
    for (Index h = 0; h < s_.heads; ++h) {
      fovea::SoftmaxKernels<T>{}.merge({&heads[as_size(h)], block(), h, s_.heads,
                                        parts.view().data(), count, row.view().data()});
    }
    return result;
  }

 private:
  SoftmaxBlockArgs<T> head(Index h, const Result& result) const {
    SoftmaxBlockArgs<T> args;
    args.q = stored(fovea::Matrix<const T>{&q_(0, h, 0, 0), s_.width, 1});
    args.k = stored(matrix(k_));
    args.v = stored(matrix(v_));
    args.out = output(fovea::Matrix<T>{&result.out(0, h, 0, 0), s_.value_width, 1});
    args.lse = {&result.lse(0, h, 0, 0), 1, 1};
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.scale = static_cast<T>(0.3);
    args.first_position = s_.first_key;
    args.key_rows = key_rows();
    if (s_.mapped) {
      args.map.soft_cap = T{3};
      args.map.alibi_slope = static_cast<T>(0.03);
      args.map.dropout = {0.25, 7, 2, h};
    }
    const Index end = first_of(s_.runs - 1) + s_.step * s_.keys;
    args.key_end = end - s_.step * s_.keys / 50;  // the last ones are invisible
    args.block = block();
    return args;
  }

  static fovea::Matrix<const T> matrix(const Tensor<T>& x) {
    const Shape strides = x.view().strides();
    return {&x(0, 0, 0, 0), strides[2], strides[3]};
  }
  static Layout guarded(Layout layout, Guard guard) {
    layout.guard = guard;
    return layout;
  }

  QueryBlock block() const { return {0, 1, s_.rows, runs_.data(), s_.runs}; }

  Index first_of(Index run) const { return s_.first_key + run * (s_.step == 1 ? s_.keys + 5 : 1); }
  KeyRows key_rows() const {
    if (!s_.compact) return {s_.first_key};
    KeyRows rows = {0, s_.step, s_.runs, s_.first_key % s_.step};
    rows.base = rows.row(s_.first_key);
    return rows;
  }
  Index key_row_count() const {
    return key_rows().row(first_of(s_.runs - 1) + s_.step * (s_.keys - 1)) + 1;
  }

  Sizes s_;
  Tensor<T> q_, k_, v_;
  std::vector<Index> bounds_;  // [runs, 2, rows]
  std::vector<KeyRun> runs_;
};

template <class T>
class SoftmaxRow : public testing::Test {
 protected:
  static void expect_equal(const Sizes& sizes) {
    at_each_level([&] {
      for (const Guard guard : {Guard::before, Guard::behind}) {
        const Call<T> call(sizes, guard);
        const auto rows = call.by_rows(guard);
        const auto blocks = call.by_blocks();
        const bool equal = same_bits(rows.out.values(), blocks.out.values()) &&
                           same_bits(rows.lse.values(), blocks.lse.values());
        EXPECT_TRUE(equal) << sizes.heads << " heads, " << sizes.rows << " rows, keys "
                           << sizes.first_key << " + " << sizes.keys << " by " << sizes.step
                           << " in " << sizes.runs << " runs, D " << sizes.width << ", Dv "
                           << sizes.value_width;
      }
    });
  }
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(SoftmaxRow, Scalars);

TYPED_TEST(SoftmaxRow, AnyNumberOfRows) {
  for (Index rows = 1; rows <= fovea::kMostRows; ++rows) {
    this->expect_equal({.rows = rows, .keys = 300});
    this->expect_equal({.rows = rows, .keys = 130, .bounds = false});
  }
  for (const Index heads : {2, 3, 8, 16}) this->expect_equal({.heads = heads, .rows = 4});
}

/// Distances and draws are those of positions, whatever the step of a run.
TYPED_TEST(SoftmaxRow, MapsLogitsAndWeights) {
  for (const Index step : {1, 3}) {
    for (const bool compact : {false, true}) {
      for (const Index rows : {1, 3}) {
        this->expect_equal({.heads = 2,
                            .rows = rows,
                            .first_key = 20 * step,
                            .keys = 300,
                            .runs = 2,
                            .step = step,
                            .compact = compact,
                            .mapped = true});
      }
    }
  }
}

TYPED_TEST(SoftmaxRow, AnyNumberOfKeys) {
  for (Index keys = 1; keys < 270; ++keys) {
    this->expect_equal({.keys = keys, .width = 3, .value_width = 5, .bounds = false});
    this->expect_equal({.rows = 3, .first_key = 61, .keys = keys, .width = 3, .value_width = 5});
  }
}

TYPED_TEST(SoftmaxRow, AnyWidth) {
  for (Index width = 1; width < 140; ++width) {
    this->expect_equal({.heads = 2, .keys = 40, .width = width, .value_width = 141 - width});
  }
}

/// Keys and values with strided columns, or contiguous in rows.
TYPED_TEST(SoftmaxRow, AnyStrides) {
  for (const Layout& layout : {Layout{.order = {0, 1, 3, 2}}, Layout{.innermost = 2, .gap = 1}}) {
    for (const Index rows : {1, 2, 9}) {
      for (const Index width : {5, 64, 140}) {
        this->expect_equal(
            {.rows = rows, .keys = 150, .width = width, .value_width = width, .layout = layout});
      }
    }
  }
}

TYPED_TEST(SoftmaxRow, Segments) {
  for (const Index first : {0, 1, 2047, 2048, 5000}) {
    for (const Index keys : {1, 2047, 2048, 2049, 4100}) {
      this->expect_equal({.heads = 3, .first_key = first, .keys = keys, .width = 4});
      this->expect_equal({.rows = 9, .first_key = first, .keys = keys, .width = 2});
      this->expect_equal({.first_key = first, .keys = keys, .width = 4, .bounds = false});
    }
  }
}

/// Consecutive runs of any step.
TYPED_TEST(SoftmaxRow, Runs) {
  for (const Index step : {1, 2, 3, 16, 130}) {
    for (const Index first : std::vector<Index>{0, 131, 2047 * step}) {
      for (const Index rows : {1, 2, 9}) {
        for (const Index runs : {1, 2, 7}) {
          if (step > 1 && runs > step) continue;
          this->expect_equal({.heads = 2,
                              .rows = rows,
                              .first_key = first,
                              .keys = 70,
                              .runs = runs,
                              .step = step,
                              .width = 5,
                              .value_width = 3});
        }
      }
    }
  }
  this->expect_equal({.rows = 3, .keys = 2500, .runs = 3, .step = 4, .width = 2});
}

/// Keys that are stored more densely in K and V than their positions.
TYPED_TEST(SoftmaxRow, CompactKeys) {
  for (const Index runs : {1, 3, 8}) {
    for (const Index first : {0, 5, 8 * 130, 16 * 130}) {
      for (const bool bounds : {false, true}) {
        this->expect_equal({.heads = 2,
                            .rows = 3,
                            .first_key = first,
                            .keys = 140,
                            .runs = runs,
                            .step = 13,
                            .compact = true,
                            .width = 6,
                            .value_width = 4,
                            .bounds = bounds});
      }
    }
  }
}

}  // namespace fovea_test::kernels_softmax_row
