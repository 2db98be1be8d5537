// SPDX-License-Identifier: MIT
/// \file
/// Tests of support/compare.hpp: each comparator fails on NaN, on zeros, on one bad row and just
/// above its bound, and passes just below it.
#include "support/compare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace fovea_test::support_compare {

template <class T>
class Compare : public testing::Test {
 protected:
  static constexpr Index kRows = 100;
  static constexpr Index kColumns = 10;
  static constexpr double kBound = 16;

  Compare() {
    expected_.shape = {1, 1, kRows, kColumns};
    for (Index i = 0; i < kRows * kColumns; ++i) {
      expected_.value.push_back(Wide<T>(1 + i % 7));
      expected_.gauge.push_back(Wide<T>(1 + i % 7));
      got_.push_back(static_cast<T>(1 + i % 7));
    }
  }

  /// Element i, off by this many units of its gauge.
  void set_error(Index i, double ratio) {
    const std::size_t at = as_size(i);
    expected_.value[at] = static_cast<Wide<T>>(got_[at]) -
                          static_cast<Wide<T>>(ratio) * kRoundoff<T> * expected_.gauge[at];
  }

  testing::AssertionResult judge() const { return within_ratio(got_, expected_, kBound); }

  Reference<T> expected_;
  std::vector<T> got_;
};

using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Compare, Scalars);

template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

TYPED_TEST(Compare, PassesWhenEqual) { EXPECT_TRUE(this->judge()); }

TYPED_TEST(Compare, FailsOnNaN) {
  for (const Index i : {0, 517, 999}) {
    const TypeParam before = this->got_[as_size(i)];
    this->got_[as_size(i)] = kNaN<TypeParam>;
    EXPECT_FALSE(this->judge());
    this->got_[as_size(i)] = before;
  }
}

TYPED_TEST(Compare, FailsOnNaNInTheGauge) {
  this->set_error(3, 1);
  this->expected_.gauge[3] = kNaN<Wide<TypeParam>>;
  EXPECT_FALSE(this->judge());
}

TYPED_TEST(Compare, FailsOnANumberInsteadOfNaN) {
  this->expected_.value[5] = kNaN<Wide<TypeParam>>;
  EXPECT_FALSE(this->judge());
  this->got_[5] = kInfinity<TypeParam>;
  EXPECT_FALSE(this->judge());
  this->got_[5] = kNaN<TypeParam>;
  EXPECT_TRUE(this->judge());
}

TYPED_TEST(Compare, InfinityMustBeTheSameOne) {
  this->expected_.value[5] = kInfinity<Wide<TypeParam>>;
  EXPECT_FALSE(this->judge());
  this->got_[5] = -kInfinity<TypeParam>;
  EXPECT_FALSE(this->judge());
  this->got_[5] = kInfinity<TypeParam>;
  EXPECT_TRUE(this->judge());
  this->expected_.value[5] = 1;
  EXPECT_FALSE(this->judge());
}

TYPED_TEST(Compare, FailsOnZerosForAnyGauge) {
  this->got_.assign(this->got_.size(), TypeParam{0});
  EXPECT_FALSE(this->judge());
  for (auto& gauge : this->expected_.gauge) gauge = Wide<TypeParam>(1e30);
  EXPECT_FALSE(this->judge());
  for (auto& value : this->expected_.value) value = kFaint<TypeParam>;
  EXPECT_FALSE(this->judge());
  for (auto& value : this->expected_.value) value /= 2;
  EXPECT_TRUE(this->judge());
}

TYPED_TEST(Compare, FailsOnOneBadRow) {
  for (Index c = 0; c < this->kColumns; ++c) this->got_[as_size(40 * this->kColumns + c)] += 1;
  const testing::AssertionResult result = this->judge();
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("10 of 1000 elements fail; worst [0, 0, 40, "),
            std::string::npos)
      << result.message();
}

TYPED_TEST(Compare, TheBoundIsSharp) {
  this->set_error(123, 1.01 * this->kBound);
  EXPECT_FALSE(this->judge());
  this->set_error(123, -1.01 * this->kBound);
  EXPECT_FALSE(this->judge());
  this->set_error(123, 0.99 * this->kBound);
  EXPECT_TRUE(this->judge());
}

TYPED_TEST(Compare, ReportsTheWorst) {
  this->set_error(123, 3);
  this->set_error(124, 5);
  EXPECT_TRUE(within_ratio(this->got_, this->expected_, 5.01));
  EXPECT_FALSE(within_ratio(this->got_, this->expected_, 4.99));
  this->got_[0] = kNaN<TypeParam>;
  EXPECT_FALSE(within_ratio(this->got_, this->expected_, 1e300));
}

TYPED_TEST(Compare, FailsOnAnErrorWithoutAGauge) {
  this->expected_.gauge[9] = 0;
  EXPECT_TRUE(this->judge());
  this->expected_.value[9] += Wide<TypeParam>(1e-9);
  EXPECT_FALSE(this->judge());
}

TYPED_TEST(Compare, RequiresNoMoreThanDemanded) {
  using T = TypeParam;
  const auto judged = [&](T got) {
    this->got_[5] = got;
    return static_cast<bool>(this->judge());
  };
  this->expected_.value[5] = kNaN<Wide<T>>;
  this->expected_.relax(5, Demand::not_finite);
  EXPECT_TRUE(judged(kNaN<T>));
  EXPECT_TRUE(judged(-kInfinity<T>));
  EXPECT_FALSE(judged(1));
  this->expected_.relax(5, Demand::nothing);
  this->expected_.relax(5, Demand::not_finite);  // which is more
  EXPECT_TRUE(judged(1));
  EXPECT_TRUE(judged(kNaN<T>));
  this->got_[6] = 9;
  EXPECT_FALSE(this->judge()) << "another element";
}

TYPED_TEST(Compare, FailsOnAnotherSize) {
  this->got_.pop_back();
  EXPECT_FALSE(this->judge());
  EXPECT_FALSE(within_ratio(std::vector<TypeParam>{}, this->expected_, this->kBound));
}

TYPED_TEST(Compare, BitsDetectOneUlpSignsAndNaN) {
  using T = TypeParam;
  const std::vector<T> a = {0, 1, kNaN<T>, 3};
  EXPECT_TRUE(same_bits(a, a));
  std::vector<T> b = a;
  b[1] = std::nextafter(b[1], T{2});
  EXPECT_FALSE(same_bits(a, b));
  b = a;
  b[0] = -b[0];
  EXPECT_FALSE(same_bits(a, b));
  b = a;
  b[2] = 2;
  EXPECT_FALSE(same_bits(a, b));
  b = a;
  b.pop_back();
  EXPECT_FALSE(same_bits(a, b));
  EXPECT_TRUE(same_bits(std::vector<T>{}, std::vector<T>{}));
}

}  // namespace fovea_test::support_compare
