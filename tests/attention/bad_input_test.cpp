// SPDX-License-Identifier: MIT
/// \file
/// Every refusal of the operators: the exact message, from `check` and from `forward`, with nothing
/// written; and similar inputs that must work.
#include <gtest/gtest.h>

#include <limits>
#include <new>
#include <string>
#include <vector>

#include "attention/bad_input.hpp"
#include "support/sanitizers.hpp"

namespace fovea_test::attention_bad_input {

TYPED_TEST_SUITE(BadInput, Kinds);

TYPED_TEST(BadInput, ValidCallIsAccepted) { this->expect("accepted"); }

TYPED_TEST(BadInput, Batch) {
  auto& call = this->call_;
  call.k = {call.at(1000), {3, 2, 9, 5}};
  this->expect("k has batch 3; expected 2, the batch of q");
  call.v = {call.at(2000), {1, 2, 9, 3}};
  this->expect("v has batch 1; expected 2, the batch of q");
  call.q = {call.at(0), {0, 4, 6, 5}};
  this->expect("k has batch 2; expected 0, the batch of q");
}

TYPED_TEST(BadInput, MissingTensors) {
  auto& call = this->call_;
  call.k = {};
  this->expect("k is required: it was not given, or was passed without memory");
  call.v = {};
  this->expect("v is required: it was not given, or was passed without memory");
  call.q = {};
  this->expect("q is required: it was not given, or was passed without memory");
  call.q = {};
  call.k = {};
  call.v = {};
  this->expect(
      "out has shape 2x4x6x3; expected 0x0x0x0, since the inputs are missing or were passed "
      "without memory");
}

TYPED_TEST(BadInput, Heads) {
  auto& call = this->call_;
  for (const Index heads : {3, 8, 0}) {
    call.k = {call.at(1000), {2, heads, 9, 5}};
    this->expect("k has " + std::to_string(heads) +
                 " heads; expected a divisor of the 4 heads of q");
  }
  call.v = {call.at(2000), {2, 4, 9, 3}};
  this->expect("v has 4 heads; expected 2, the heads of k");
  call.v = {call.at(2000), {2, 1, 9, 3}};
  this->expect("v has 1 head; expected 2, the heads of k");
}

TYPED_TEST(BadInput, RowsAndWidths) {
  auto& call = this->call_;
  call.k = {call.at(1000), {2, 2, 9, 4}};
  this->expect("k has width 4; expected 5, the width of q");
  call.q = {call.at(0), {2, 4, 6, 0}};
  this->expect("k has width 5; expected 0, the width of q");
  call.v = {call.at(2000), {2, 2, 8, 3}};
  this->expect("v has 8 rows; expected 9, the rows of k");
  call.k = {call.at(1000), {2, 2, 0, 5}};
  this->expect("v has 9 rows; expected 0, the rows of k");
}

TYPED_TEST(BadInput, KeyLengths) {
  auto& call = this->call_;
  call.lengths = {9};
  this->expect("the number of key_lengths is 1; expected 2, the batch of q, or 0");
  call.lengths = {9, 9, 9};
  this->expect("the number of key_lengths is 3; expected 2, the batch of q, or 0");
  call.lengths = {-1, 9};
  this->expect("key_lengths[0] is -1; expected 0 to 9, the rows of k");
  call.lengths = {9, 10};
  this->expect("key_lengths[1] is 10; expected 0 to 9, the rows of k");
  call.lengths = {kMost, std::numeric_limits<Index>::min()};
  this->expect("key_lengths[0] is 9223372036854775807; expected 0 to 9, the rows of k");
  call.lengths = {9, 9};
  this->expect("accepted");
}

TYPED_TEST(BadInput, Scale) {
  using Op = typename TypeParam::Operator;
  using T = typename TypeParam::Scalar;
  const auto with_scale = [](double scale) { return Op({.scale = scale}); };
  const std::string rest = "; expected a finite number of the inputs' type";
  for (const double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    this->expect("scale is " + fovea::to_string(scale) + rest, with_scale(scale));
  }
  const bool fits = std::is_same_v<T, double>;
  const std::string too_large = "scale is 1e+39" + rest;
  this->expect(fits ? "accepted" : too_large, with_scale(1e39));
  if (!fits) this->expect("scale is 1e+300" + rest, with_scale(1e300));
  this->expect("accepted", with_scale(-3));
  this->expect("accepted", with_scale(0));
  this->expect("accepted", with_scale(1e-300));
}

template <class T>
std::string window_refusal(Index left, Index right) {
  Call<T> call;
  const std::string local = call.refusal(LocalAttention{{.left = left, .right = right}});
  const std::string full = call.refusal(FullAttention{{.window = {left, right}}});
  const std::string causal = call.refusal(FullAttention{{.causal = true, .window = {left, right}}});
  EXPECT_EQ(full, causal);
  if (local == "accepted") return full == "accepted" ? full : "they differ";
  const std::string name = "LocalAttention";
  EXPECT_EQ(local.substr(0, name.size()), name);
  EXPECT_EQ(full, "FullAttention" + local.substr(name.size()));
  return local;
}

TYPED_TEST(BadInput, Window) {
  using T = typename TypeParam::Scalar;
  EXPECT_EQ(window_refusal<T>(-1, 0), "LocalAttention: left is -1; expected at least 0 keys");
  EXPECT_EQ(window_refusal<T>(0, -2), "LocalAttention: right is -2; expected at least 0 keys");
  EXPECT_EQ(window_refusal<T>(-3, -2), "LocalAttention: left is -3; expected at least 0 keys");
  EXPECT_EQ(window_refusal<T>(0, 0), "accepted");
  EXPECT_EQ(window_refusal<T>(kMost, kMost), "accepted");
  EXPECT_EQ(window_refusal<T>(kMost - 1, kMost / 4), "accepted");
}

TYPED_TEST(BadInput, OutShape) {
  auto& call = this->call_;
  const std::string rest = "; expected 2x4x6x3, to match the inputs";
  call.out = {call.at(3000), {3, 4, 6, 3}};
  this->expect("out has shape 3x4x6x3" + rest);
  call.out = {call.at(3000), {2, 2, 6, 3}};
  this->expect("out has shape 2x2x6x3" + rest);
  call.out = {call.at(3000), {2, 4, 9, 3}};
  this->expect("out has shape 2x4x9x3" + rest);
  call.out = {call.at(3000), {2, 4, 6, 5}};
  this->expect("out has shape 2x4x6x5" + rest);
  call.out = {};
  this->expect("out is empty: it was passed without memory" + rest);
}

TYPED_TEST(BadInput, OutLayout) {
  auto& call = this->call_;
  call.out = {call.at(3000 + 15), {2, 4, 6, 3}, {72, 18, -3, 1}};
  this->expect("stride of rows of out is -3; expected at least 0 in an output");
  call.out = {call.at(3000 + 72), {2, 4, 6, 3}, {-72, 18, 3, 1}};
  this->expect("stride of batch of out is -72; expected at least 0 in an output");
  const auto shared = [&](const Shape& strides) {
    call.out = {call.at(3000), {2, 4, 6, 3}, strides};
    std::string text;
    for (const Index stride : strides) text += (text.empty() ? "" : ", ") + std::to_string(stride);
    this->expect("out has strides [" + text +
                 "] for 2x4x6x3; the elements of an output need different addresses");
  };
  shared({72, 18, 3, 0});
  shared({72, 18, 0, 1});
  shared({72, 0, 3, 1});
  shared({0, 18, 3, 1});
  shared({72, 18, 2, 1});
  shared({72, 17, 3, 1});
  shared({54, 18, 3, 1});
  shared({72, 18, 1, 1});
  call.out = {call.at(3000), {2, 4, 6, 3}, {1, 2, 8, 48}};
  this->expect("accepted");
}

TYPED_TEST(BadInput, OutOverlappingAnInput) {
  auto& call = this->call_;
  const auto in_memory_of = [&](const std::string& input, Index offset) {
    call.out = {call.at(offset), {2, 4, 6, 3}};
    this->expect(input == "none"
                     ? "accepted"
                     : "out overlaps " + input + "; outputs must not alias inputs or each other");
  };
  in_memory_of("q", 0);
  in_memory_of("q", 2 * 4 * 6 * 5 - 1);
  in_memory_of("none", 2 * 4 * 6 * 5);
  in_memory_of("k", 1000);
  in_memory_of("k", 1000 - 2 * 4 * 6 * 3 + 1);
  in_memory_of("none", 1000 - 2 * 4 * 6 * 3);
  in_memory_of("v", 2000 + 7);
  in_memory_of("v", 2000 + 2 * 2 * 9 * 3 - 1);
  in_memory_of("none", 2000 + 2 * 2 * 9 * 3);
}

TYPED_TEST(BadInput, InterleavedDisjointTensorsAreAccepted) {
  using Op = typename TypeParam::Operator;
  using T = typename TypeParam::Scalar;
  Call<T>& call = this->call_;
  // Rows of 8: five of q, three of out.
  call.q = {call.at(5000), {2, 4, 6, 5}, {192, 48, 8, 1}};
  call.out = {call.at(5005), {2, 4, 6, 3}, {192, 48, 8, 1}};
  this->expect("accepted");
  call.q = {call.at(5000), {2, 4, 6, 5}, {192, 48, 8, 1}};
  call.out = {call.at(5004), {2, 4, 6, 3}, {192, 48, 8, 1}};
  this->expect("out overlaps q; outputs must not alias inputs or each other");
  // Every other element.
  call.q = {call.at(5000), {2, 4, 6, 5}, {240, 60, 10, 2}};
  call.out = {call.at(5001), {2, 4, 6, 3}, {240, 60, 10, 2}};
  EXPECT_EQ(call.refusal(Op{}), "accepted");
  call.out = {call.at(5002), {2, 4, 6, 3}, {240, 60, 10, 2}};
  this->expect("out overlaps q; outputs must not alias inputs or each other");
}

TYPED_TEST(BadInput, Lse) {
  auto& call = this->call_;
  call.lse = {call.at(4000), {2, 4, 6, 3}};
  this->expect("lse has shape 2x4x6x3; expected 2x4x6x1, to match the inputs");
  call.lse = {call.at(4000), {2, 6, 4, 1}};
  this->expect("lse has shape 2x6x4x1; expected 2x4x6x1, to match the inputs");
  call.lse = {call.at(4005), {2, 4, 6, 1}, {24, 6, -1, 1}};
  this->expect("stride of rows of lse is -1; expected at least 0 in an output");
  call.lse = {call.at(4000), {2, 4, 6, 1}, {0, 6, 1, 1}};
  this->expect(
      "lse has strides [0, 6, 1, 1] for 2x4x6x1; the elements of an output need different "
      "addresses");
  call.lse = {call.at(3), {2, 4, 6, 1}};
  this->expect("lse overlaps q; outputs must not alias inputs or each other");
  call.lse = {call.at(1003), {2, 4, 6, 1}};
  this->expect("lse overlaps k; outputs must not alias inputs or each other");
  call.lse = {call.at(2003), {2, 4, 6, 1}};
  this->expect("lse overlaps v; outputs must not alias inputs or each other");
  call.lse = {call.at(3000 + 143), {2, 4, 6, 1}};
  this->expect("lse overlaps out; outputs must not alias inputs or each other");
  call.lse = {call.at(3000 + 144), {2, 4, 6, 1}};
  this->expect("accepted");
  // Beside out, in rows of four.
  call.out = {call.at(5000), {2, 4, 6, 3}, {96, 24, 4, 1}};
  call.lse = {call.at(5003), {2, 4, 6, 1}, {96, 24, 4, 1}};
  this->expect("accepted");
  call.lse = {};
  this->expect("accepted");
}

TYPED_TEST(BadInput, OversizedTensors) {
  using T = typename TypeParam::Scalar;
  Call<T>& call = this->call_;
  const Index rows = kMost / 8 + 1;
  call.q = View<const T>(call.at(0), {1, 1, rows, 1}, {0, 0, 0, 1});
  call.k = View<const T>(call.at(0), {1, 1, 3, 1});
  call.v = View<const T>(call.at(0), {1, 1, 3, 1});
  this->expect("q has " + std::to_string(rows) + " rows; expected at most " +
               std::to_string(rows - 1));
  call.q = View<const T>(call.at(0), {1, 1, 3, 1});
  call.k = View<const T>(call.at(0), {1, 1, rows, 1}, {0, 0, 0, 1});
  call.v = View<const T>(call.at(0), {1, 1, rows, 1}, {0, 0, 0, 1});
  this->expect("k has " + std::to_string(rows) + " rows; expected at most " +
               std::to_string(rows - 1));
  const Index width = kMost / 65536 + 1;
  call.q = View<const T>(call.at(0), {1, 1, 3, width}, {0, 0, 1, 0});
  call.k = View<const T>(call.at(0), {1, 1, 3, width}, {0, 0, 1, 0});
  call.v = View<const T>(call.at(0), {1, 1, 3, 1});
  this->expect("q has width " + std::to_string(width) + "; expected at most " +
               std::to_string(width - 1));
  call.q = View<const T>(call.at(0), {1, 1, 3, 1});
  call.k = View<const T>(call.at(0), {1, 1, 3, 1});
  call.v = View<const T>(call.at(0), {1, 1, 3, width}, {0, 0, 1, 0});
  this->expect("v has width " + std::to_string(width) + "; expected at most " +
               std::to_string(width - 1));
}

#if !defined(FOVEA_TEST_ASAN)
/// If scratch cannot be allocated, std::bad_alloc is thrown before anything is written.
TYPED_TEST(BadInput, OversizedScratch) {
  using Op = typename TypeParam::Operator;
  using T = typename TypeParam::Scalar;
  Call<T>& call = this->call_;
  constexpr Index width = Index{1} << 44;
  const View<const T> wide(call.at(0), {1, 1, 1, width}, {0, 0, 0, 0});
  const View<T> out(call.at(3000), {1, 1, 1, 1});
  const std::vector<T> before = call.memory;
  const AllInputs<T> in{wide, wide, View<const T>(call.at(0), {1, 1, 1, 1})};
  EXPECT_THROW(Op{}.forward(in, out), std::bad_alloc);
  EXPECT_TRUE(same_bits(before, call.memory));
}
#endif

TYPED_TEST(BadInput, EmptyCallsAreAccepted) {
  using T = typename TypeParam::Scalar;
  this->call_.q = View<const T>();
  this->call_.k = View<const T>();
  this->call_.v = View<const T>();
  this->call_.out = View<T>();
  this->call_.lse = View<T>();
  this->expect("accepted");
}

TYPED_TEST(BadInput, BroadcastInputsAreAccepted) {
  auto& call = this->call_;
  call.q = {call.at(0), {2, 4, 6, 5}, {0, 0, 0, 0}};
  call.k = {call.at(1), {2, 2, 9, 5}, {0, 0, 5, 1}};
  call.v = {call.at(1), {2, 2, 9, 3}, {0, 0, 0, 1}};
  this->expect("accepted");
  // Inputs may share memory.
  call.q = {call.at(0), {2, 4, 6, 5}};
  call.k = {call.at(0), {2, 2, 9, 5}};
  call.v = {call.at(0), {2, 2, 9, 3}};
  this->expect("accepted");
}

}  // namespace fovea_test::attention_bad_input
