// SPDX-License-Identifier: MIT
/// \file
/// Members of inputs: 32- and 64-bit integers from every kind of memory, and what converts to a
/// view or a span of numbers.
#include "fovea/core/members.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "fovea/core/eigen.hpp"

namespace {

using fovea::Index;
using fovea::IndexSpan;
using fovea::Tensor4;
using fovea::View;
using fovea::ViewMember;

std::vector<Index> read(IndexSpan span) { return {span.begin(), span.end()}; }

const std::vector<Index> kExpected = {0, 3, 3, 9};

template <class I>
void expect_read() {
  const std::vector<I> vector = {0, 3, 3, 9};
  EXPECT_EQ(read(vector), kExpected);
  EXPECT_EQ(read(std::span<const I>(vector)), kExpected);
  EXPECT_EQ(read(std::array<I, 4>{0, 3, 3, 9}), kExpected);
  const I array[] = {0, 3, 3, 9};
  EXPECT_EQ(read(array), kExpected);
  EXPECT_EQ(read(IndexSpan(vector.data(), 4)), kExpected);
  const std::vector<I> ends = {std::numeric_limits<I>::min(), std::numeric_limits<I>::max()};
  EXPECT_EQ(IndexSpan(ends)[0], Index{std::numeric_limits<I>::min()});
  EXPECT_EQ(IndexSpan(ends)[1], Index{std::numeric_limits<I>::max()});

  Eigen::Vector<I, Eigen::Dynamic> of_eigen(4);
  of_eigen << 0, 3, 3, 9;
  EXPECT_EQ(read(of_eigen), kExpected);
  EXPECT_EQ(read(Eigen::Map<const Eigen::Array<I, 1, 4>>(vector.data())), kExpected);
  Eigen::Matrix<I, 2, 4, Eigen::ColMajor> matrix;
  matrix << 0, 3, 3, 9, -1, -2, -3, -4;
  EXPECT_EQ(read(matrix.row(0)), kExpected);  // every second integer of memory
  Eigen::Tensor<I, 1> tensor(4);
  for (int i = 0; i < 4; ++i) tensor(i) = vector[static_cast<std::size_t>(i)];
  EXPECT_EQ(read(tensor), kExpected);
}

TEST(IndexSpan, ReadsIntegersOf32And64Bits) {
  expect_read<int>();
  expect_read<long>();
  expect_read<long long>();
  EXPECT_TRUE(read({}).empty());
  EXPECT_TRUE(IndexSpan().empty());
}

TEST(IndexSpan, DoesNotCopy) {
  std::vector<int> lengths = {1, 2};
  const IndexSpan span = lengths;
  lengths[1] = 5;
  EXPECT_EQ(span[1], 5);
  EXPECT_EQ(span.front(), 1);
  EXPECT_EQ(span.back(), 5);
  EXPECT_EQ(span.size(), 2U);
}

TEST(IndexSpan, MayHaveNoInteger) {
  const std::vector<Index> lengths = {3, 5};
  EXPECT_EQ(IndexSpan(lengths).value_or(1, 7), 5);
  EXPECT_EQ(IndexSpan().value_or(1, 7), 7);
}

TEST(IndexSpan, CanBeSearched) {
  const std::vector<int> ends = {0, 3, 3, 9};
  const IndexSpan span = ends;
  const auto behind = std::upper_bound(span.begin(), span.end(), 4);
  EXPECT_EQ(*behind, 9);
  EXPECT_EQ(*(behind - 1), 3);
  EXPECT_EQ(behind - span.begin(), 3);
}

static_assert(std::is_convertible_v<Tensor4<float>&, ViewMember<float>>);
static_assert(std::is_convertible_v<const Tensor4<float>&, ViewMember<const float>>);
static_assert(std::is_convertible_v<View<float>, ViewMember<const float>>);
static_assert(std::is_convertible_v<ViewMember<float>&, ViewMember<const float>>);
static_assert(std::is_convertible_v<ViewMember<float>, View<float>>);
static_assert(std::is_convertible_v<ViewMember<const float>, View<const float>>);
static_assert(std::is_trivially_copyable_v<ViewMember<float>>);
static_assert(sizeof(ViewMember<float>) == sizeof(View<float>));

TEST(ViewMember, EqualsItsView) {
  Tensor4<float> tensor(2, 3, 4, 5);
  const ViewMember<const float> member = tensor;
  EXPECT_EQ(member.data(), tensor.data());
  EXPECT_EQ(member.shape(), (fovea::Shape{2, 3, 4, 5}));
  const ViewMember<const float> of_pointer = {tensor.data(), {2, 3, 4, 5}, {60, 20, 5, 1}};
  EXPECT_EQ(of_pointer.strides(), member.strides());
  ViewMember<const float> other;
  EXPECT_TRUE(other.empty());
  other = member;
  EXPECT_EQ(other.data(), tensor.data());
  EXPECT_TRUE(ViewMember<float>({}).empty());
}

TEST(SpanMember, EqualsItsSpan) {
  std::vector<float> numbers = {1, 2, 3};
  const fovea::SpanMember<const float> read = numbers;
  const fovea::SpanMember<float> written = numbers;
  EXPECT_EQ(read.data(), numbers.data());
  EXPECT_EQ(written.size(), 3U);
  EXPECT_EQ(fovea::SpanMember<const float>(std::array<float, 2>{1, 2}).size(), 2U);
}

}  // namespace
