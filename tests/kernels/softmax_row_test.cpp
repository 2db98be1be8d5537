// SPDX-License-Identifier: MIT
/// \file
/// The kernels of few rows against the block kernel, by bits: any bounds, rows and heads, with a
/// base of the keys, K, V and scratch between guard pages.
#include "fovea/kernels/softmax_row.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "fovea/kernels/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/tensor.hpp"

namespace fovea_test {
namespace {

using fovea::KeyRun;
using fovea::kKeySegment;
using fovea::QueryBlock;
using fovea::SoftmaxBlockArgs;

/// Rows of some heads that share a key head.
struct Sizes {
  Index heads = 1;
  Index rows = 1;
  Index first_key = 0;  // of the run
  Index keys = 100;
  Index width = 8;
  Index value_width = 8;
  bool bounds = true;  // of each row, drawn
};

/// What the kernels are called with, for keys [first_key, first_key + keys).
template <class T>
class Call {
 public:
  Call(const Sizes& sizes, Guard guard)
      : s_(sizes),
        q_({1, s_.heads, s_.rows, s_.width}),
        k_({1, 1, s_.keys, s_.width}, {.guard = guard}),
        v_({1, 1, s_.keys, s_.value_width}, {.guard = guard}) {
    q_.fill(gaussian(1));
    k_.fill(gaussian(2));
    v_.fill(gaussian(3));
    for (Index r = 0; r < s_.rows; ++r) {
      const auto draw = [&](std::uint64_t seed) {
        return static_cast<Index>(hash(seed, r, 0, 0, 0) % static_cast<std::uint64_t>(s_.keys + 1));
      };
      lower_.push_back(std::min(draw(4), draw(5)));
      upper_.push_back(std::max(draw(6), draw(7)));
    }
    run_ = {s_.first_key, 1, s_.keys, s_.bounds ? lower_.data() : nullptr,
            s_.bounds ? upper_.data() : nullptr};
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
      fovea::kernels<T>().softmax_block(args);
    }
    return result;
  }

  Result by_rows(Guard guard) const {
    Result result(s_);
    std::vector<SoftmaxBlockArgs<T>> heads;
    for (Index h = 0; h < s_.heads; ++h) heads.push_back(head(h, result));
    const Index first = s_.first_key / kKeySegment;
    const Index segments = (s_.first_key + s_.keys - 1) / kKeySegment + 1 - first;
    const Index rows = s_.heads * s_.rows;
    const Index part = fovea::softmax_row_part(rows, s_.value_width);
    const Tensor<T> parts({1, 1, segments, part}, {.guard = guard});
    const Tensor<T> scratch({1, 1, 1, fovea::softmax_row_scratch(rows, s_.width)},
                            {.guard = guard});
    const Tensor<T> row({1, 1, 1, fovea::softmax_merge_scratch(s_.value_width)}, {.guard = guard});
    for (Index n = segments; n-- > 0;) {
      fovea::kernels<T>().softmax_row(
          {heads.data(), s_.heads, first + n, &parts(0, 0, n, 0), scratch.view().data()});
    }
    for (Index h = 0; h < s_.heads; ++h) {
      fovea::kernels<T>().softmax_merge(
          {&heads[as_size(h)], h, s_.heads, parts.view().data(), segments, row.view().data()});
    }
    return result;
  }

 private:
  SoftmaxBlockArgs<T> head(Index h, const Result& result) const {
    SoftmaxBlockArgs<T> args;
    args.q = stored(fovea::Matrix<const T>{&q_(0, h, 0, 0), s_.width, 1});
    args.k = stored(fovea::Matrix<const T>{&k_(0, 0, 0, 0), s_.width, 1});
    args.v = stored(fovea::Matrix<const T>{&v_(0, 0, 0, 0), s_.value_width, 1});
    args.out = stored(fovea::Matrix<T>{&result.out(0, h, 0, 0), s_.value_width, 1});
    args.lse = {&result.lse(0, h, 0, 0), 1, 1};
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.scale = static_cast<T>(0.3);
    args.first_position = s_.first_key;
    args.key_base = s_.first_key;
    args.key_end = s_.first_key + s_.keys - s_.keys / 50;  // the last ones are invisible
    args.block = {0, 1, s_.rows, &run_, 1};
    return args;
  }

  Sizes s_;
  Tensor<T> q_, k_, v_;
  std::vector<Index> lower_, upper_;
  KeyRun run_;
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
                           << sizes.first_key << " + " << sizes.keys << ", D " << sizes.width
                           << ", Dv " << sizes.value_width;
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

TYPED_TEST(SoftmaxRow, Segments) {
  for (const Index first : {0, 1, 2047, 2048, 5000}) {
    for (const Index keys : {1, 2047, 2048, 2049, 4100}) {
      this->expect_equal({.heads = 3, .first_key = first, .keys = keys, .width = 4});
      this->expect_equal({.rows = 9, .first_key = first, .keys = keys, .width = 2});
      this->expect_equal({.first_key = first, .keys = keys, .width = 4, .bounds = false});
    }
  }
}

}  // namespace
}  // namespace fovea_test
