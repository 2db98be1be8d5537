// SPDX-License-Identifier: MIT
// The embedding of a text: the same numbers every time, and shorter sequences are beginnings.
#include "bench/io/compare_input.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "bench/io/advise_input.hpp"

namespace fovea_test::bench_io_compare_input {

using bench::HeadTensors;
using bench::Index;

const std::string kText = "Attention operators on real input, and the same input every time. ";

TEST(Gaussian, DependsOnItsCoordinatesOnly) {
  EXPECT_EQ(bench::gaussian(1, 2, 3), bench::gaussian(1, 2, 3));
  EXPECT_NE(bench::gaussian(1, 2, 3), bench::gaussian(1, 2, 4));
  EXPECT_NE(bench::gaussian(1, 2, 3), bench::gaussian(1, 3, 3));
  EXPECT_NE(bench::gaussian(1, 2, 3), bench::gaussian(2, 2, 3));
}

TEST(Gaussian, HasMeanZeroAndVarianceOne) {
  double sum = 0;
  double square = 0;
  double fourth = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = bench::gaussian(7, 0, static_cast<std::uint64_t>(i));
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.015);
  EXPECT_NEAR(square / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 2.85, 0.1);  // 3 - 1.2 / 8
}

TEST(EmbedText, IsTheSameEveryTime) {
  const HeadTensors a = bench::embed_text(kText, 40, 3, 8);
  const HeadTensors b = bench::embed_text(kText, 40, 3, 8);
  EXPECT_EQ(a.q, b.q);
  EXPECT_EQ(a.k, b.k);
  EXPECT_EQ(a.v, b.v);
}

TEST(EmbedText, ShorterSequencesArePrefixes) {
  const HeadTensors whole = bench::embed_text(kText, 64, 2, 8);
  const HeadTensors part = bench::embed_text(kText, 16, 2, 8);
  const auto a = whole.first(16);
  const auto b = part.first(16);
  EXPECT_EQ(a.q.shape(), b.q.shape());
  for (Index h = 0; h < 2; ++h) {
    for (Index i = 0; i < 16; ++i) {
      for (Index c = 0; c < 8; ++c) {
        EXPECT_EQ(a.q(0, h, i, c), b.q(0, h, i, c));
        EXPECT_EQ(a.k(0, h, i, c), b.k(0, h, i, c));
        EXPECT_EQ(a.v(0, h, i, c), b.v(0, h, i, c));
      }
    }
  }
}

TEST(EmbedText, RepeatsAShortDocument) {
  const std::string twice = kText + kText;
  const auto n = static_cast<Index>(twice.size());
  EXPECT_EQ(bench::embed_text(kText, n, 1, 4).v, bench::embed_text(twice, n, 1, 4).v);
}

TEST(EmbedText, DependsOnTheTextAndTakesEveryByte) {
  EXPECT_NE(bench::embed_text("abc", 3, 1, 4).q, bench::embed_text("abd", 3, 1, 4).q);
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (const float x : bench::embed_text(bytes, 256, 2, 4).q) EXPECT_TRUE(std::isfinite(x));
}

TEST(EmbedText, TokensAreNormalised) {
  for (const auto& token : bench::embed_tokens(kText, 20)) {
    double sum = 0;
    double square = 0;
    for (const float x : token) {
      sum += x;
      square += static_cast<double>(x) * x;
    }
    EXPECT_NEAR(sum / static_cast<double>(token.size()), 0, 1e-5);
    EXPECT_NEAR(square / static_cast<double>(token.size()), 1, 1e-4);
  }
}

TEST(EmbedText, LogitsSpreadAsInAModel) {
  constexpr Index n = 64;
  constexpr Index d = 64;
  const auto x = bench::embed_text(kText, n, 3, d);
  const auto in = x.first(n);
  double previous = 0;
  for (const Index h : {0, 1, 2}) {  // gains 1/2, 1, 2
    double square = 0;
    for (Index i = 0; i < n; ++i) {
      for (Index j = 0; j < n; ++j) {
        double dot = 0;
        for (Index c = 0; c < d; ++c)
          dot += static_cast<double>(in.q(0, h, i, c)) * in.k(0, h, j, c);
        square += dot * dot / d;
      }
    }
    const double spread = std::sqrt(square / (n * n));
    EXPECT_GT(spread, previous);
    EXPECT_GT(spread, 0.4);
    EXPECT_LT(spread, 8);
    previous = spread;
  }
}

/// The message of check_finite for the first n rows.
std::string refusal_of(const HeadTensors& tensors, Index n) {
  try {
    check_finite(tensors, n, "dir");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CheckFinite, ReportsTheTensorAndTheFirstPosition) {
  HeadTensors x = bench::embed_text(kText, 10, 2, 4);
  EXPECT_EQ(refusal_of(x, 10), "accepted");
  x.k[(1 * 10 + 7) * 4 + 2] = std::numeric_limits<float>::quiet_NaN();
  const std::string end = " (as float32): the operators' results could not be judged";
  EXPECT_EQ(refusal_of(x, 10), "dir: k.npy holds NaN at head 1, row 7, column 2" + end);
  EXPECT_EQ(refusal_of(x, 7), "accepted");  // rows that are not read
  x.k[(0 * 10 + 8) * 4 + 3] = -std::numeric_limits<float>::infinity();
  x.v[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(refusal_of(x, 10),
            "dir: k.npy holds infinity at head 0, row 8, column 3 and 1 more; "
            "v.npy holds NaN at head 0, row 0, column 3" +
                end);
}

TEST(Repeated, RowsAndHeadsRepeat) {
  const HeadTensors text = bench::embed_text(kText, 10, 4, 3);
  HeadTensors x = text;  // of 4 heads, pairs share keys
  x.k_shape[1] = x.v_shape[1] = 2;
  x.k.resize(2 * 10 * 3);
  x.v.resize(2 * 10 * 3);
  for (const Index heads : {6, 5, 1}) {
    const HeadTensors more = bench::repeated(x, heads, 23);
    const Index sharing = heads == 6 ? 2 : 1;
    EXPECT_EQ(more.q_shape, (fovea::Shape{1, heads, 23, 3}));
    EXPECT_EQ(more.k_shape, (fovea::Shape{1, heads / sharing, 23, 3}));
    const auto from = x.first(10);
    const auto to = more.first(23);
    for (Index h = 0; h < heads; ++h) {
      for (Index n = 0; n < 23; ++n) {
        EXPECT_EQ(to.q(0, h, n, 2), from.q(0, h % 4, n % 10, 2));
        EXPECT_EQ(to.k(0, h / sharing, n, 1), from.k(0, h % 4 / 2, n % 10, 1));
        EXPECT_EQ(to.v(0, h / sharing, n, 0), from.v(0, h % 4 / 2, n % 10, 0));
      }
    }
  }
}

}  // namespace fovea_test::bench_io_compare_input
