// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/overlap.hpp against sets of addresses.
#include "fovea/core/overlap.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/fill.hpp"
#include "support/index.hpp"

namespace fovea_test::core_overlap {

using fovea::has_distinct_elements;
using fovea::shares_elements;

std::vector<const float*> addresses(const View<float>& x) {
  std::vector<const float*> all;
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { all.push_back(&x(b, h, n, d)); });
  return all;
}

bool share(const View<float>& a, const View<float>& b) {
  const std::vector<const float*> of_a = addresses(a);
  const std::set<const float*> in_a(of_a.begin(), of_a.end());
  for (const float* p : addresses(b)) {
    if (in_a.count(p) != 0) return true;
  }
  return false;
}

bool distinct(const View<float>& x) {
  const std::vector<const float*> all = addresses(x);
  return std::set<const float*>(all.begin(), all.end()).size() == all.size();
}

std::string text(const View<float>& x) {
  return fovea::to_string(x.shape()) + " strides " + fovea::to_string(x.strides());
}

std::vector<float>& storage() {
  static std::vector<float> all(2000);
  return all;
}

/// Any strides: zero, negative, not nested.
View<float> any_view(Draw& draw) {
  Shape shape;
  Shape strides;
  for (std::size_t d = 0; d < 4; ++d) {
    shape[d] = draw(1, 4) - (draw(0, 30) == 0 ? 1 : 0);
    strides[d] = draw(-12, 24);
  }
  return View<float>(storage().data() + 1000 + draw(-60, 60), shape, strides);
}

/// Nested strides with gaps, in any order of the axes.
View<float> nested_view(Draw& draw) {
  Shape shape;
  Shape strides;
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  for (std::size_t d = 3; d > 0; --d) {
    std::swap(order[d], order[static_cast<std::size_t>(draw(0, static_cast<Index>(d)))]);
  }
  Index stride = draw(1, 3);
  for (const std::size_t d : order) {
    shape[d] = draw(1, 3);
    strides[d] = stride;
    stride = stride * shape[d] + draw(0, 4);
  }
  return View<float>(storage().data() + 900 + draw(0, 200), shape, strides);
}

TEST(Overlap, SharedElementsAreThoseOfBruteForce) {
  int shared = 0;
  for (std::uint64_t seed = 0; seed < 40000; ++seed) {
    Draw draw(seed);
    const bool nested = seed % 2 == 0;
    const View<float> a = nested ? nested_view(draw) : any_view(draw);
    const View<float> b = nested ? nested_view(draw) : any_view(draw);
    const bool expected = share(a, b);
    ASSERT_EQ(shares_elements(a, b), expected)
        << "seed " << seed << ": " << text(a) << " and " << text(b) << ", " << b.data() - a.data()
        << " apart";
    ASSERT_EQ(shares_elements(b, a), expected) << "seed " << seed;
    shared += expected ? 1 : 0;
  }
  EXPECT_GT(shared, 4000);  // both results were requested
  EXPECT_LT(shared, 36000);
}

TEST(Overlap, DistinctHasNoFalsePositives) {
  int claimed = 0;
  for (std::uint64_t seed = 0; seed < 40000; ++seed) {
    Draw draw(seed);
    const View<float> x = any_view(draw);
    if (!has_distinct_elements(x)) continue;
    ++claimed;
    ASSERT_TRUE(distinct(x)) << "seed " << seed << ": " << text(x);
  }
  EXPECT_GT(claimed, 1000);
}

TEST(Overlap, NestedLayoutsAreDistinct) {
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Draw draw(seed);
    const View<float> x = nested_view(draw);
    ASSERT_TRUE(distinct(x));
    ASSERT_TRUE(has_distinct_elements(x)) << "seed " << seed << ": " << text(x);
  }
}

TEST(Overlap, StridesOfExtentsOfOneDoNotCount) {
  float x[4] = {};
  EXPECT_TRUE(has_distinct_elements(View<float>(x, {1, 1, 1, 4}, {0, 0, 0, 1})));
  EXPECT_TRUE(has_distinct_elements(View<float>(x, {1, 1, 4, 1}, {1, 1, 1, 1})));
  EXPECT_FALSE(has_distinct_elements(View<float>(x, {2, 1, 4, 1}, {0, 1, 1, 1})));
  EXPECT_TRUE(has_distinct_elements(View<float>(x, {2, 0, 4, 1}, {0, 1, 1, 1})));
}

/// A dimension of one index may have any stride.
TEST(Overlap, ExtremeStridesOfExtentsOfOneDoNotCount) {
  constexpr Index most = std::numeric_limits<Index>::max();
  constexpr Index least = std::numeric_limits<Index>::min();
  float x[8] = {};
  bool y[8] = {};
  for (const Index stride : {least, least + 1, most}) {
    const View<float> low(x, {1, 1, 1, 4}, {stride, stride, stride, 1});
    const View<float> high(x + 4, {1, 1, 1, 4}, {stride, least, most, 1});
    EXPECT_TRUE(has_distinct_elements(low));
    EXPECT_TRUE(shares_elements(low, low));
    EXPECT_FALSE(shares_elements(low, high));
    EXPECT_FALSE(shares_elements(high, low));
    EXPECT_FALSE(shares_elements(low, View<bool>(y, {1, 1, 1, 8}, {stride, most, least, 1})));
  }
}

TEST(Overlap, EmptyViewsShareNothing) {
  float x[4] = {};
  const View<float> some(x, {1, 1, 2, 2});
  EXPECT_FALSE(shares_elements(some, View<float>(x, {1, 0, 2, 2})));
  EXPECT_FALSE(shares_elements(View<float>(), some));
  EXPECT_FALSE(shares_elements(View<float>(), View<float>()));
  EXPECT_TRUE(shares_elements(some, View<const float>(some)));
}

/// An address alone: nothing is read there.
// NOLINTNEXTLINE(performance-no-int-to-ptr)
float* far(Index elements) { return reinterpret_cast<float*>(std::intptr_t{1} << 40) + elements; }

/// Slices of one array as attention layers make them: q, k, v and out side by side.
TEST(Overlap, PackedTensorsShareNothing) {
  const auto slice = [&](Index first) {
    return View<float>(far(first), {8, 16, 4096, 64}, {Index{4096} * 4096, 64, 4096, 1});
  };
  for (const Index a : {0, 1, 2, 3}) {
    for (const Index b : {0, 1, 2, 3}) {
      EXPECT_EQ(shares_elements(slice(1024 * a), slice(1024 * b)), a == b) << a << " " << b;
    }
  }
  EXPECT_TRUE(shares_elements(slice(0), slice(1024 - 1)));
  EXPECT_FALSE(shares_elements(slice(0), slice(Index{8} * 4096 * 4096)));
  EXPECT_TRUE(has_distinct_elements(slice(0)));
}

/// Too long to decide counts as shared.
TEST(Overlap, HardLayoutsTerminateConservatively) {
  const View<float> a(far(0), {5000, 5000, 5000, 5000}, {1000003, 1000033, 1000037, 1000039});
  const View<float> b(far(1), {5000, 5000, 5000, 5000}, {1000081, 1000099, 1000117, 1000121});
  EXPECT_TRUE(shares_elements(a, b));
  EXPECT_FALSE(has_distinct_elements(a));
}

TEST(Overlap, HugeReachDoesNotOverflow) {
  constexpr Index most = std::numeric_limits<Index>::max() / Index{sizeof(float)};
  const View<float> up(far(0), {1, 1, 1, 2}, {0, 0, 0, most});
  const View<float> down(far(0), {1, 1, 1, 2}, {0, 0, 0, -most});
  EXPECT_TRUE(shares_elements(up, down));  // the first elements
  EXPECT_TRUE(shares_elements(down, up));
  EXPECT_FALSE(shares_elements(up, View<float>(far(1), {1, 1, 1, 2}, {0, 0, 0, most - 2})));
  EXPECT_TRUE(has_distinct_elements(up));
}

/// Elements of one byte may extend over the whole range of Index: sums of two extents overflow, and
/// so do addresses.
TEST(Overlap, HugeReachOfBytesDoesNotOverflow) {
  constexpr Index most = std::numeric_limits<Index>::max();
  const auto bytes = [](Index first) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<std::int8_t*>(std::intptr_t{1} << 40) + first;
  };
  const View<std::int8_t> up(bytes(0), {1, 1, 1, 2}, {0, 0, 0, most});
  const View<std::int8_t> down(bytes(0), {1, 1, 1, 2}, {0, 0, 0, -most});
  const View<std::int8_t> half(bytes(5), {1, 1, 2, 2}, {0, 0, 1, most / 2});
  EXPECT_TRUE(shares_elements(up, down));
  EXPECT_TRUE(shares_elements(up, half));  // on the safe side
  EXPECT_TRUE(shares_elements(half, half));
  EXPECT_TRUE(has_distinct_elements(up));
  // Of other sizes the bytes are compared, as far as addresses go.
  EXPECT_TRUE(shares_elements(up, View<float>(far(1000), {1, 1, 1, 4})));
  EXPECT_FALSE(shares_elements(up, View<float>(far(-1000), {1, 1, 1, 4})));
  EXPECT_TRUE(shares_elements(down, View<float>(far(-1000), {1, 1, 1, 4})));
  EXPECT_FALSE(shares_elements(down, View<float>(far(1000), {1, 1, 1, 4})));
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* const last = reinterpret_cast<std::int8_t*>(std::numeric_limits<std::intptr_t>::min());
  EXPECT_FALSE(shares_elements(View<std::int8_t>(last, {1, 1, 1, 2}, {0, 0, 0, -most}),
                               View<float>(far(0), {1, 1, 1, 4})));
}

/// Views of elements of different sizes that follow each other share nothing, in either order.
TEST(Overlap, OtherSizesMayTouch) {
  alignas(double) std::array<std::byte, 64> bytes{};
  const View<float> floats(reinterpret_cast<float*>(bytes.data()), {1, 1, 2, 4});
  const auto doubles = [&](std::size_t at) {
    return View<double>(reinterpret_cast<double*>(bytes.data() + at), {1, 1, 1, 4});
  };
  EXPECT_FALSE(shares_elements(floats, doubles(32)));
  EXPECT_FALSE(shares_elements(doubles(32), floats));
  EXPECT_TRUE(shares_elements(floats, doubles(24)));
  EXPECT_TRUE(shares_elements(doubles(24), floats));
}

}  // namespace fovea_test::core_overlap
