// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/view.hpp and core/error.hpp.
#include "fovea/core/view.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "support/refusal.hpp"

namespace fovea_test::core_view {

using fovea::Index;
using fovea::Shape;
using fovea::View;

static_assert(std::is_nothrow_default_constructible_v<View<float>>);
static_assert(std::is_trivially_copyable_v<View<float>>);
static_assert(std::is_convertible_v<View<float>, View<const float>>);
static_assert(!std::is_convertible_v<View<const float>, View<float>>);
static_assert(!std::is_convertible_v<View<float>, View<double>>);
static_assert(!std::is_convertible_v<View<float>, View<const double>>);
static_assert(!std::is_convertible_v<std::vector<float>, View<float>>);
static_assert(std::is_same_v<View<const float>::Scalar, float>);

constexpr Index kMost = std::numeric_limits<Index>::max();
constexpr Index kLeast = std::numeric_limits<Index>::min();

template <class T>
std::string strided(T* data, const Shape& shape, const Shape& strides) {
  return refusal([&] { View<T>(data, shape, strides); });
}

TEST(View, IsInitiallyEmpty) {
  const View<float> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(none.shape(), (Shape{0, 0, 0, 0}));
  float x = 0;
  EXPECT_FALSE((View<float>(&x, {1, 1, 1, 1}).empty()));
  EXPECT_FALSE((View<float>(&x, {1, 1, 0, 1}).empty()));
  EXPECT_FALSE((View<float>(nullptr, {1, 1, 0, 1}).empty()));
}

TEST(Messages, ContainShortNumbers) {
  EXPECT_EQ(fovea::to_string(1e300), "1e+300");
  EXPECT_EQ(fovea::to_string(-0.1), "-0.1");
  EXPECT_EQ(fovea::to_string(0.1F), "0.1");
  EXPECT_EQ(fovea::to_string(1 + std::numeric_limits<double>::epsilon()), "1.0000000000000002");
  EXPECT_EQ(fovea::to_string(-std::numeric_limits<double>::denorm_min()), "-5e-324");
  EXPECT_EQ(fovea::to_string(-std::numeric_limits<double>::max()), "-1.7976931348623157e+308");
  EXPECT_EQ(fovea::to_string(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(View, IsRowMajorWithoutStrides) {
  std::vector<int> data(120);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int>(i);
  const View<int> view(data.data(), {2, 3, 4, 5});
  EXPECT_EQ(view.strides(), (Shape{60, 20, 5, 1}));
  EXPECT_EQ(view.batch(), 2);
  EXPECT_EQ(view.heads(), 3);
  EXPECT_EQ(view.rows(), 4);
  EXPECT_EQ(view.width(), 5);
  EXPECT_EQ(view.size(), 120);
  int next = 0;
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index n = 0; n < 4; ++n) {
        for (Index d = 0; d < 5; ++d) EXPECT_EQ(view(b, h, n, d), next++);
      }
    }
  }
}

TEST(View, SupportsAnyStrides) {
  std::vector<int> data = {0, 1, 2, 3, 4, 5, 6, 7};
  const View<int> backwards(data.data() + 7, {1, 2, 2, 2}, {99, -4, -2, -1});
  EXPECT_EQ(backwards(0, 0, 0, 0), 7);
  EXPECT_EQ(backwards(0, 1, 1, 1), 0);
  const View<int> broadcast(data.data(), {3, 1, 2, 4}, {0, 0, 4, 1});
  EXPECT_EQ(broadcast(2, 0, 1, 3), 7);
  const View<const int> constant = broadcast;
  EXPECT_EQ(constant.data(), broadcast.data());
  EXPECT_EQ(constant.strides(), broadcast.strides());
  EXPECT_EQ(&constant(1, 0, 1, 2), &broadcast(0, 0, 1, 2));
}

TEST(View, WritesThrough) {
  std::vector<double> data(6);
  const View<double> view(data.data(), {1, 1, 2, 3});
  view(0, 0, 1, 2) = 4;
  EXPECT_EQ(data[5], 4);
}

TEST(View, RefusesNegativeExtents) {
  float x = 0;
  for (std::size_t d = 0; d < 4; ++d) {
    for (const Index extent : {Index{-1}, kLeast}) {
      Shape shape = {1, 1, 1, 1};
      shape[d] = extent;
      const std::string expected =
          "View: shape has " + fovea::extent_text(shape, d) + "; expected at least 0";
      EXPECT_EQ(strided(&x, shape, {1, 1, 1, 1}), expected);
      EXPECT_EQ(refusal([&] { View<float>(&x, shape); }), expected);
      shape[(d + 1) % 4] = 0;  // an empty one too
      EXPECT_EQ(strided<float>(nullptr, shape, {1, 1, 1, 1}), expected);
    }
  }
}

TEST(View, RefusesSizesThatDoNotFit) {
  float x = 0;
  constexpr Index half = Index{1} << 62;
  for (const Shape& shape :
       {Shape{half, 2, 1, 1}, Shape{1, 1, half, half}, Shape{half, 0, half, 1},
        Shape{3037000500, 3037000500, 1, 1}, Shape{kMost, kMost, kMost, kMost}}) {
    const std::string expected = "View: shape is " + fovea::to_string(shape) +
                                 "; expected a number of elements that fits std::ptrdiff_t";
    EXPECT_EQ(refusal([&] { View<float>(&x, shape); }), expected);
    EXPECT_EQ(strided(&x, shape, {0, 0, 0, 0}), expected);
  }
  EXPECT_EQ(strided(&x, {half, 1, 1, 1}, {0, 0, 0, 0}), "accepted");
  EXPECT_EQ(strided(&x, {1, kMost, 1, 0}, {7, 7, 7, 7}), "accepted");
}

TEST(View, RefusesNullData) {
  EXPECT_EQ(refusal([] {
              View<float>(nullptr, {1, 2, 3, 4});
            }),
            "View: data is null; expected the address of 1x2x3x4 elements");
  EXPECT_EQ(strided<float>(nullptr, {1, 2, 3, 4}, {0, 0, 0, 0}),
            "View: data is null; expected the address of 1x2x3x4 elements");
  for (std::size_t d = 0; d < 4; ++d) {
    Shape shape = {1, 2, 3, 4};
    shape[d] = 0;
    EXPECT_EQ(refusal([&] { View<float>(nullptr, shape); }), "accepted");
  }
}

TEST(View, RefusesOffsetsThatDoNotFit) {
  float x = 0;
  constexpr Index most = kMost / 4;  // elements of float
  const auto refused = [&](const Shape& shape, const Shape& strides, const std::string& name,
                           Index stride) {
    EXPECT_EQ(strided(&x, shape, strides),
              "View: stride of " + name + " is " + std::to_string(stride) + " for " +
                  fovea::to_string(shape) + " elements; expected offsets that fit std::ptrdiff_t");
  };
  refused({1, 1, 2, 1}, {0, 0, kMost, 0}, "rows", kMost);
  refused({1, 1, 2, 1}, {0, 0, kLeast, 0}, "rows", kLeast);
  refused({2, 1, 1, 1}, {most + 1, 0, 0, 0}, "batch", most + 1);
  refused({1, 3, 1, 1}, {0, most / 2 + 1, 0, 0}, "heads", most / 2 + 1);
  refused({1, 3, 1, 1}, {0, -(most / 2 + 1), 0, 0}, "heads", -(most / 2 + 1));
  refused({2, 1, 1, 2}, {most, 0, 0, 1}, "width", 1);
  EXPECT_EQ(strided(&x, {1, 1, 2, 1}, {0, 0, most, 0}), "accepted");
  EXPECT_EQ(strided(&x, {1, 1, 2, 1}, {kMost, kLeast, 1, kMost}), "accepted");  // extents of 1
  EXPECT_EQ(strided(&x, {1, 0, 2, 1}, {0, 0, kMost, 0}), "accepted");           // no elements
}

TEST(View, ShapesAsText) {
  EXPECT_EQ(fovea::to_string(Shape{2, 8, 4096, 64}), "2x8x4096x64");
  EXPECT_EQ(fovea::to_string(Shape{0, -1, 3, 0}), "0x-1x3x0");
}

TEST(Refuse, HasAFixedForm) {
  using fovea::refuse_extent;
  EXPECT_EQ(refusal([] { fovea::refuse("Op", "left", "-1", "at least 0 keys"); }),
            "Op: left is -1; expected at least 0 keys");
  EXPECT_EQ(refusal([] {
              refuse_extent("Op", "k", {2, 3, 1, 5}, 0, "1");
            }),
            "Op: k has batch 2; expected 1");
  EXPECT_EQ(refusal([] {
              refuse_extent("Op", "k", {2, 3, 1, 5}, 1, "a divisor of 8");
            }),
            "Op: k has 3 heads; expected a divisor of 8");
  EXPECT_EQ(refusal([] {
              refuse_extent("Op", "k", {2, 3, 1, 5}, 2, "4, the rows of v");
            }),
            "Op: k has 1 row; expected 4, the rows of v");
  EXPECT_EQ(refusal([] { refuse_extent("Op", "k", {}, 3, "4"); }),
            "Op: k is required: it was not given, or was passed without memory");
  EXPECT_EQ(refusal([] { fovea::refuse_given("Op", "mask", "it is not read"); }),
            "Op: mask must not be given: it is not read");
}

/// The check that all refusals of the tests go through finds what it is there for.
TEST(Refuse, TheFormIsChecked) {
  EXPECT_EQ(fault_of_message("Op: left is -1; expected 0 to 3"), "");
  EXPECT_EQ(fault_of_message("rank 1: Op: out has strides [2, 1, 0, 0] for 1x2x3x4; they"), "");
  for (const char* const text :
       {"left is -1", ": left is -1", "Op: q is missing; expected it",
        "Op: k is 4; expected 2 to 2", "Op: k is 4; expected 2 to -1",
        "Op: k is 4; expected ascending in [2, 2)", "Op: out is missing; expected one of batch 1",
        "Op: mask is given; expected none"}) {
    EXPECT_NE(fault_of_message(text), "") << text;
  }
}

TEST(Refuse, FormatsRanges) {
  EXPECT_EQ(fovea::range_text(0, 5), "0 to 5");
  EXPECT_EQ(fovea::range_text(-3, -3), "-3");
  EXPECT_EQ(fovea::range_text(0, -1), "none");
}

}  // namespace fovea_test::core_view
