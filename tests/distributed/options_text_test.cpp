// SPDX-License-Identifier: MIT
/// \file
/// Every option of every operator is part of what ranks agree on: the text of an operator differs
/// if one of its options does, whatever it is and however deep.
#include "fovea/distributed/messages/options_text.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <type_traits>

#include "fovea/fovea.hpp"
#include "fovea/spectral.hpp"
#include "support/index.hpp"

namespace fovea_test::distributed_options_text {

using namespace fovea;
using distributed::detail::for_each_member;
using distributed::detail::options_text;

/// Calls f once for each value in x that is a number, a flag, a choice or a list, while it has
/// another value. \param x not const, though it comes as such
template <class X>
void with_each_change(const X& x, const std::function<void()>& f) {
  X& value = const_cast<X&>(x);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  const X before = value;
  if constexpr (std::is_same_v<X, bool>) {
    value = !value;
  } else if constexpr (std::is_arithmetic_v<X>) {
    value = static_cast<X>(value - 1);
  } else if constexpr (std::is_enum_v<X>) {
    value = static_cast<X>(static_cast<std::underlying_type_t<X>>(value) + 1);
  } else if constexpr (requires { value.emplace(); }) {
    value.emplace();
  } else if constexpr (requires { value.push_back({}); }) {
    if (value.empty()) return;  // the meaning of its elements is unknown
    value.push_back(value.back());
  } else if constexpr (std::is_empty_v<X>) {
    return;
  } else {
    for_each_member(x, [&](const auto& member) { with_each_change(member, f); });
    return;
  }
  f();
  value = before;
  if constexpr (requires { value.push_back({}); }) with_each_change(value.front(), f);
}

/// Counts the options, each of which changes the text.
template <class Op>
int options_told(Op op) {
  const std::string before = options_text(op);
  int count = 0;
  with_each_change(op.options, [&] {
    EXPECT_NE(options_text(op), before) << Op::name() << ", option " << count << ": " << before;
    ++count;
  });
  EXPECT_EQ(options_text(op), before);
  return count;
}

TEST(OptionsText, ContainsEveryOption) {
  const BlockRows blocks = {{0, 1}, {3}};
  constexpr Dropout dropout = {.probability = 0.5, .seed = 3};
  EXPECT_EQ(options_told(FullAttention({.dropout = dropout})), 8);
  EXPECT_EQ(options_told(LocalAttention({.dropout = dropout})), 7);
  EXPECT_EQ(options_told(StridedAttention({.dropout = dropout})), 9);
  EXPECT_EQ(options_told(FixedAttention({.dropout = dropout})), 10);
  EXPECT_EQ(options_told(LongformerAttention({.global = {7}, .dropout = dropout})), 11);
  EXPECT_EQ(options_told(BigBirdAttention({.given_blocks = {blocks}, .dropout = dropout})), 17);
  EXPECT_EQ(options_told(BlockSparseAttention({.layouts = {blocks}, .dropout = dropout})), 12);
  EXPECT_EQ(options_told(LinearAttention<EluPlusOne>()), 5);
  EXPECT_EQ(options_told(FmmTwoKernels()), 9);
  EXPECT_EQ(options_told(DeltaRuleAttention<EluPlusOne>()), 1);
  EXPECT_EQ(options_told(PerformerAttention()), 2);
  EXPECT_EQ(options_told(IndexedAttention()), 3);
  EXPECT_EQ(options_told(SmartBirdAttention(SmartBirdOptions{})), 8);
  EXPECT_EQ(options_told(FsatAttention(FsatOptions{})), 7);
  EXPECT_EQ(options_told(ReformerAttention(ReformerOptions{})), 9);
  EXPECT_EQ(options_told(SinkhornAttention(SinkhornOptions{})), 3);
  EXPECT_EQ(options_told(NystroemAttention()), 4);
  EXPECT_EQ(options_told(LinformerAttention()), 1);
  EXPECT_EQ(options_told(LunaPack()), 1);
  EXPECT_EQ(options_told(RandomSynthesizerAttention()), 1);
  EXPECT_EQ(options_told(FatAttention()), 1);
  EXPECT_EQ(options_told(HiddenStateCross()), 1);
  EXPECT_EQ(options_told(FourierMixer()), 1);
}

/// A function of logits.
struct Halved {
  template <class T>
  T value(T z, const ScorePair& /*pair*/) const noexcept {
    return z / 2;
  }
};

TEST(OptionsText, IsShortForDefaults) {
  EXPECT_EQ(options_text(FullAttention{}), "");
  EXPECT_EQ(options_text(LunaPack{{.scale = 0.1}}), ", options {{0.1}}");
  EXPECT_EQ(options_text(NystroemAttention{{.landmarks = 3}}), ", options {3, 6, 0, {}}");
  EXPECT_EQ(options_text("a name"), "");
  // Options that have no effect may differ.
  EXPECT_EQ(options_text(FullAttention{{.dropout = {0, 7}}}), "");
}

TEST(OptionsText, ContainsMapsModifiersAndDenominators) {
  EXPECT_EQ(options_text(LinearAttention<EluPlusOne, Relu>{}), ", elu(x) + 1, max(x, 0)");
  EXPECT_EQ(options_text(FmmFastWeight{}), ", delta rule of elu(x) + 1");
  EXPECT_EQ(options_text(LinearAttention<Tanh>{{.denominator = Denominator::signed_floor(0.25)}}),
            ", tanh(x), options {false, 0, {2, 0.25}, 0}");
  EXPECT_EQ(options_text(ModifiedAttention(LocalAttention{{.left = 3}}, Halved{})),
            ", modified, options {3, 0, {}, 0, {}, {0}}");
  // Patterns are identified by hashes of their plans.
  EXPECT_EQ(options_text(SparseAttention{{.patterns = {Causal{}, Dense{}}}}),
            ", options {{?, ?}, {}, 0, {}, {0}}");
}

}  // namespace fovea_test::distributed_options_text
