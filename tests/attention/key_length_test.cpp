// SPDX-License-Identifier: MIT
/// \file
/// Query rows that end where the keys of their sequence end, CausalAlignment::key_length, and rows
/// at positions that inputs give. (The oracles know both; the conformance suite has cases with this
/// alignment, and packed_test.cpp compares their padded batches with packed sequences.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_key_length {

using namespace fovea;
using bench::AllInputs;

constexpr Index kHeads = 4;
constexpr Index kKeyHeads = 2;
constexpr Index kWidth = 5;
constexpr Index kValueWidth = 6;
constexpr auto kAlignment = CausalAlignment::key_length;

/// A modifier that reads the position and the row.
struct ByPair {
  template <class T>
  T value(T z, ScorePair p) const noexcept {
    return z + static_cast<T>((7 * p.query + 3 * p.key + p.row + 100) % 13) / 8;
  }
  template <class T>
  T derivative(T /*z*/, ScorePair /*p*/) const noexcept {
    return 1;
  }
};

template <class T>
class KeyLength : public testing::Test {};
TYPED_TEST_SUITE(KeyLength, Scalars);

/// A cache of 16 rows of which 5 are filled, and 3 new queries: they see 3, 4 and 5 keys.
struct Cache {
  std::vector<float> zeros = std::vector<float>(16 * 2);
  std::vector<float> values = std::vector<float>(16);
  std::vector<Index> lengths = {5};

  Cache() {
    for (std::size_t j = 0; j < values.size(); ++j) values[j] = static_cast<float>(j);
  }
  SoftmaxInputs<float> inputs() const {
    return {.q = {zeros.data(), {1, 1, 3, 2}},
            .k = {zeros.data(), {1, 1, 16, 2}},
            .v = {values.data(), {1, 1, 16, 1}},
            .key_lengths = lengths};
  }
  template <class Op>
  static std::vector<float> out(const Op& op, const InputsOf<Op, float>& in) {
    std::vector<float> made(3);
    op.forward(in, View<float>(made.data(), {1, 1, 3, 1}));
    return made;
  }
};

TEST(KeyLength, NewRowsOfACacheSeeNoLaterToken) {
  const Cache cache;
  const std::vector<float> seen = {1, 1.5, 2};
  EXPECT_EQ(cache.out(FullAttention{{.causal = true, .alignment = kAlignment}}, cache.inputs()),
            seen);
  EXPECT_EQ(cache.out(LocalAttention{{.left = 3, .alignment = kAlignment}}, cache.inputs()),
            (std::vector<float>{1, 1.5, 2.5}));
  auto in = cache.inputs();
  const Index first[] = {2};
  in.first_positions = first;
  EXPECT_EQ(cache.out(FullAttention{{.causal = true}}, in), seen);
  // Padding between the keys and the rows, where that is meant.
  const Index last[] = {13};
  in.first_positions = last;
  EXPECT_EQ(cache.out(FullAttention{{.causal = true}}, in), (std::vector<float>{2, 2, 2}));
}

TEST(KeyLength, MisalignedRowsAreRefused) {
  const Cache cache;
  const std::string said =
      ": alignment is bottom_right, by which the 3 rows of q end at row 16 of k, though "
      "key_lengths[0] is 5; expected CausalAlignment::key_length, by which they end at key 5, or "
      "first_positions, if row 0 has position 13; top_left is also accepted, and so are as many "
      "rows of q as of k";
  const auto refused = [&](const auto& op) {
    return refusal([&] { cache.out(op, cache.inputs()); });
  };
  EXPECT_EQ(refused(FullAttention{{.causal = true}}), "FullAttention" + said);
  EXPECT_EQ(refused(FullAttention{{.window = {3, 0}}}), "FullAttention" + said);
  EXPECT_EQ(refused(LocalAttention{{.left = 3}}), "LocalAttention" + said);
  EXPECT_EQ(refused(LocalAttention{{.left = 3, .right = 3}}), "LocalAttention" + said);
  EXPECT_EQ(refused(StridedAttention{{.stride = 4}}), "StridedAttention" + said);
  EXPECT_EQ(refused(FixedAttention{{.stride = 4, .summary = 1}}), "FixedAttention" + said);
  EXPECT_EQ(refused(BigBirdAttention{{.block = 2, .causal = true}}), "BigBirdAttention" + said);
  EXPECT_EQ(refused(ModifiedAttention(FullAttention{{.causal = true}}, ByPair{})),
            "FullAttention" + said);
  // Attention to all keys does not depend on positions.
  EXPECT_EQ(refused(FullAttention{}), "accepted");
  EXPECT_EQ(refused(FullAttention{{.causal = true, .alignment = CausalAlignment::top_left}}),
            "accepted");
  const auto all = [&](const auto& op) {
    AllInputs<float> in;
    in.q = cache.inputs().q;
    in.k = cache.inputs().k;
    in.v = cache.inputs().v;
    in.key_lengths = cache.lengths;
    return refusal([&] { cache.out(op, in); });
  };
  EXPECT_EQ(all(LongformerAttention{{.left = 3, .first_global = 1}}), "LongformerAttention" + said);
  EXPECT_EQ(all(LinearAttention<EluPlusOne>{{.causal = true}}), "LinearAttention" + said);
  EXPECT_EQ(all(LinearAttention<EluPlusOne>{}), "accepted");
  EXPECT_EQ(all(DeltaRuleAttention<EluPlusOne>{}), "DeltaRuleAttention" + said);
  EXPECT_EQ(all(FmmAttention<EluPlusOne>{{.band = {3, 3}}}), "FmmAttention" + said);
  EXPECT_EQ(all(PerformerAttention{{.causal = true}}), "PerformerAttention" + said);
  EXPECT_EQ(all(IndexedAttention{{.causal = true}}), "IndexedAttention" + said);
}

/// A past of 12 tokens, of whose 6 new keys 4 have queries: rows 12 to 15 of causal attention.
TYPED_TEST(KeyLength, RowsMayBeAtAnyPosition) {
  using T = TypeParam;
  const Tensor<T> q({2, kHeads, 18, kWidth});
  const Tensor<T> k({2, kKeyHeads, 18, kWidth});
  const Tensor<T> v({2, kKeyHeads, 18, kValueWidth});
  q.fill(gaussian(1));
  k.fill(gaussian(2));
  v.fill(gaussian(3));
  const auto expect_rows = [&](const auto& op) {
    const Tensor<T> all({2, kHeads, 18, kValueWidth});
    AllInputs<T> in{q.view(), k.view(), v.view()};
    op.forward(in, all.view());
    // Another position for each sequence, and one for both.
    for (const std::vector<Index>& first :
         {std::vector<Index>{12, 12}, std::vector<Index>{12, 3}}) {
      Tensor<T> some({2, kHeads, 4, kWidth});
      some.fill(
          [&](Index b, Index h, Index n, Index d) { return q(b, h, first[as_size(b)] + n, d); });
      in.q = some.view();
      in.first_positions = first;
      const Tensor<T> out({2, kHeads, 4, kValueWidth});
      op.forward(in, out.view());
      for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
        ASSERT_EQ(out(b, h, n, d), all(b, h, first[as_size(b)] + n, d)) << b << " " << n;
      });
    }
  };
  at_each_level([&] {
    expect_rows(FullAttention{{.causal = true, .dropout = {.probability = 0.2}}});
    expect_rows(LocalAttention{{.left = 3, .right = 2}});
    expect_rows(StridedAttention{{.stride = 5, .heads = HeadAssignment::merged}});
    expect_rows(LinearAttention<EluPlusOne>{{.causal = true}});
  });
}

TEST(KeyLength, InvalidPositionsAreRefused) {
  const Cache cache;
  const auto refused = [&](const std::vector<Index>& first) {
    auto in = cache.inputs();
    in.first_positions = first;
    return refusal([&] { cache.out(FullAttention{{.causal = true}}, in); });
  };
  EXPECT_EQ(refused({-100}), "accepted");
  EXPECT_EQ(refused({1000}), "accepted");
  EXPECT_EQ(refused({1, 2}),
            "FullAttention: the number of first_positions is 2; expected 1, the batch of q, or 0");
  const std::string most = std::to_string(kFarPosition / 4);
  EXPECT_EQ(refused({kFarPosition}), "FullAttention: first_positions[0] is " +
                                         std::to_string(kFarPosition) + "; expected between -" +
                                         most + " and " + most);
  auto in = cache.inputs();
  const Index ends[] = {0, 1, 3};
  const Index key_ends[] = {0, 8, 16};
  const Index first[] = {7};
  in.key_lengths = {};
  in.cu_seqlens_q = ends;
  in.cu_seqlens_k = key_ends;
  in.first_positions = first;
  EXPECT_EQ(refusal([&] { cache.out(FullAttention{}, in); }),
            "FullAttention: the number of first_positions is 1; expected 2, the packed sequences, "
            "or 0");
}

}  // namespace fovea_test::attention_key_length
