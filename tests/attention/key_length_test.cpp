// SPDX-License-Identifier: MIT
/// \file
/// Query rows that end where the keys of their sequence end, CausalAlignment::key_length: a padded
/// batch is the packed sequences of its keys, bit by bit. And rows at positions that inputs give.
/// (The oracles know both; the conformance suite has cases with this alignment.)
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"
#include "support/tensor.hpp"

namespace fovea_test::attention_key_length {

using namespace fovea;
using bench::AllGrads;
using bench::AllInputs;
using bench::AllSaved;

constexpr Index kHeads = 4;
constexpr Index kKeyHeads = 2;
constexpr Index kWidth = 5;
constexpr Index kValueWidth = 6;
constexpr Index kListed = 7;  // places of a list
constexpr auto kAlignment = CausalAlignment::key_length;

/// The sizes of a batch whose sequences have some of the keys of a cache.
struct Sizes {
  Index queries;
  Index keys;
  std::vector<Index> lengths;

  Index batch() const { return static_cast<Index>(lengths.size()); }
};

/// The inputs and outputs of a call.
template <class T>
struct Call {
  Tensor<T> q, k, v, d_out, beta, sketch_q, sketch_k;
  Tensor<Index> lists;
  Tensor<T> projection;
  std::vector<T> slopes, sink;
  std::vector<Index> lengths, cu_q, cu_k;

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), lengths, cu_q, cu_k};
    in.alibi_slopes = slopes;
    in.sink = sink;
    in.beta = beta.view();
    in.sketch_q = sketch_q.view();
    in.sketch_k = sketch_k.view();
    in.indices = lists.view();
    in.projection = projection.view();
    return in;
  }
};

/// A padded batch, with NaN beyond the keys of a sequence.
template <class T>
Call<T> padded(const Sizes& s) {
  const Index b = s.batch();
  Call<T> call{Tensor<T>({b, kHeads, s.queries, kWidth}),
               Tensor<T>({b, kKeyHeads, s.keys, kWidth}),
               Tensor<T>({b, kKeyHeads, s.keys, kValueWidth}),
               Tensor<T>({b, kHeads, s.queries, kValueWidth}),
               Tensor<T>({b, kKeyHeads, s.keys, 1}),
               Tensor<T>({b, 1, s.queries, 3}),
               Tensor<T>({b, 1, s.keys, 3}),
               Tensor<Index>({b, kHeads, s.queries, kListed}),
               Tensor<T>({1, 1, 4, kWidth}),
               {T(0.3), T(0.2), T(0.1), T(0.05)},
               {T(0.5), T(-1), T(0), T(1)},
               s.lengths,
               {},
               {}};
  std::uint64_t seed = 0;
  for (const Tensor<T>* x : {&call.q, &call.d_out, &call.sketch_q, &call.projection}) {
    x->fill(gaussian(++seed));
  }
  for (const Tensor<T>* x : {&call.k, &call.v, &call.sketch_k}) {
    const Fill fill = gaussian(++seed);
    for_each_index(x->shape(), [&](Index i, Index h, Index n, Index d) {
      if (n < s.lengths[as_size(i)]) (*x)(i, h, n, d) = static_cast<T>(fill(i, h, n, d));
    });
  }
  call.beta.fill(
      [](Index i, Index h, Index n, Index d) { return 0.05 + 0.9 * uniform(hash(9, i, h, n, d)); });
  for_each_index({b, kHeads, s.queries, 1}, [&](Index i, Index h, Index n, Index) {
    Index place = 0;
    for (Index j = 0; j < s.lengths[as_size(i)] && place < kListed; ++j) {
      if (hash(10, i, h, n, j) % 5 == 0) call.lists(i, h, n, place++) = j;
    }
    while (place < kListed) call.lists(i, h, n, place++) = -1;
  });
  return call;
}

/// The rows of a batch's tensor, with the sequences concatenated.
template <class X>
Tensor<X> in_one(const Tensor<X>& x, const std::vector<Index>& cu) {
  const auto& [batch, heads, rows, width] = x.shape();
  Tensor<X> made({1, heads, cu.back(), width});
  for (Index b = 0; b < batch; ++b) {
    const Index first = cu[as_size(b)];
    for_each_index(
        {1, heads, cu[as_size(b + 1)] - first, width},
        [&](Index, Index h, Index n, Index d) { made(0, h, first + n, d) = x(b, h, n, d); });
  }
  return made;
}

/// Output, lse and the gradients of q, k, v and beta.
template <class T>
struct Results {
  Tensor<T> out, lse, q, k, v, beta;
};

template <class T, class Op, class E>
Results<T> run(const Op& op, const Call<T>& call, E&& executor) {
  const auto in = call.inputs();
  const Shape& rows = call.d_out.shape();
  Results<T> made{Tensor<T>(rows),           Tensor<T>({rows[0], rows[1], rows[2], 1}),
                  Tensor<T>(call.q.shape()), Tensor<T>(call.k.shape()),
                  Tensor<T>(call.v.shape()), Tensor<T>(call.beta.shape())};
  const AllSaved<T> saved{.lse = made.lse.view()};
  op.forward(in, made.out.view(), saved, executor);
  const AllGrads<T> grads{
      .q = made.q.view(), .k = made.k.view(), .v = made.v.view(), .beta = made.beta.view()};
  op.backward(in, View<const T>(made.out.view()), saved, View<const T>(call.d_out.view()), grads,
              executor);
  return made;
}

template <class T>
testing::AssertionResult same(const Results<T>& a, const Results<T>& b) {
  using Member = Tensor<T> Results<T>::*;
  const std::pair<const char*, Member> all[] = {
      {"out", &Results<T>::out}, {"lse", &Results<T>::lse}, {"d_q", &Results<T>::q},
      {"d_k", &Results<T>::k},   {"d_v", &Results<T>::v},   {"d_beta", &Results<T>::beta}};
  for (const auto& [name, member] : all) {
    testing::AssertionResult result =
        same_bits((a.*member).values(), (b.*member).values(), (a.*member).shape());
    if (!result) return result << " in " << name;
  }
  return testing::AssertionSuccess();
}

template <class T, class Op>
void expect_as_packed(const char* name, const Op& op) {
  SCOPED_TRACE(name);
  // Blocks of rows; few rows, which are split by keys; more rows than keys; all alike; none.
  for (const Sizes& s : {Sizes{9, 150, {150, 41, 5, 0}}, Sizes{70, 300, {300, 131, 64, 1}},
                         Sizes{2, 2300, {2300, 1, 1100}}, Sizes{3, 16, {5, 5}}}) {
    SCOPED_TRACE(std::to_string(s.queries) + " queries");
    const Call<T> batch = padded<T>(s);
    std::vector<Index> cu_q = {0}, cu_k = {0};
    for (const Index length : s.lengths) {
      cu_q.push_back(cu_q.back() + s.queries);
      cu_k.push_back(cu_k.back() + length);
    }
    const Call<T> one{in_one(batch.q, cu_q),
                      in_one(batch.k, cu_k),
                      in_one(batch.v, cu_k),
                      in_one(batch.d_out, cu_q),
                      in_one(batch.beta, cu_k),
                      in_one(batch.sketch_q, cu_q),
                      in_one(batch.sketch_k, cu_k),
                      in_one(batch.lists, cu_q),
                      batch.projection.in({}),
                      batch.slopes,
                      batch.sink,
                      {},
                      cu_q,
                      cu_k};
    const Results<T> expected = run(op, one, Serial{});
    const auto expect_same = [&](const Results<T>& got) {
      const Results<T> of_one{in_one(got.out, cu_q), in_one(got.lse, cu_q), in_one(got.q, cu_q),
                              in_one(got.k, cu_k),   in_one(got.v, cu_k),   in_one(got.beta, cu_k)};
      EXPECT_TRUE(same(of_one, expected));
      // Gradients beyond the keys are 0.
      for_each_index(got.k.shape(), [&](Index b, Index h, Index n, Index d) {
        if (n < s.lengths[as_size(b)]) return;
        ASSERT_EQ(got.k(b, h, n, d), 0) << b << " " << n;
      });
    };
    expect_same(run(op, batch, Serial{}));
    static const ThreadPool pool(3);
    expect_same(run(op, batch, pool));
  }
}

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

TYPED_TEST(KeyLength, OfSoftmaxAttentionEqualsPackedSequences) {
  using T = TypeParam;
  constexpr Dropout some{.probability = 0.3, .seed = 12345};
  const FullAttention causal{
      {.causal = true, .alignment = kAlignment, .soft_cap = 2.5, .dropout = some}};
  at_each_level([&] {
    expect_as_packed<T>("causal", causal);
    expect_as_packed<T>("full", FullAttention{{.alignment = kAlignment, .dropout = some}});
    expect_as_packed<T>("modified", ModifiedAttention(causal, ByPair{}));
    expect_as_packed<T>("local", LocalAttention{{.left = 3, .right = 1, .alignment = kAlignment}});
  });
}

TYPED_TEST(KeyLength, OfSparsePatternsEqualsPackedSequences) {
  using T = TypeParam;
  constexpr auto merged = HeadAssignment::merged;
  BigBirdOptions bird{.block = 8, .global_blocks = 1, .random_blocks = 2, .seed = 5};
  bird.last_global_blocks = 1;
  bird.alignment = kAlignment;
  at_each_level([&] {
    expect_as_packed<T>("strided", StridedAttention{{.stride = 7, .alignment = kAlignment}});
    expect_as_packed<T>(
        "fixed",
        FixedAttention{{.stride = 10, .summary = 2, .heads = merged, .alignment = kAlignment}});
    expect_as_packed<T>(
        "longformer",
        LongformerAttention{{.left = 9, .right = 4, .first_global = 3, .alignment = kAlignment}});
    expect_as_packed<T>("big bird", BigBirdAttention(bird));
    expect_as_packed<T>("dilated", SparseAttention{{.patterns = {DilatedWindow{4, 2, 3}},
                                                    .alignment = kAlignment}});
  });
}

TYPED_TEST(KeyLength, OfFarFieldsEqualsPackedSequences) {
  using T = TypeParam;
  at_each_level([&] {
    expect_as_packed<T>("linear", LinearAttention<EluPlusOne, TanhPlusOne>{
                                      {.causal = true, .alignment = kAlignment}});
    expect_as_packed<T>("delta", DeltaRuleAttention<EluPlusOne>{{.alignment = kAlignment}});
    expect_as_packed<T>("fmm", FmmAttention<EluPlusOne>{
                                   {.band = {.left = 4, .right = 2}, .alignment = kAlignment}});
    expect_as_packed<T>("fmm with a delta rule",
                        FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{
                            {.band = {.left = 4}, .alignment = kAlignment}});
    expect_as_packed<T>("performer", PerformerAttention{{.causal = true, .alignment = kAlignment}});
  });
}

TYPED_TEST(KeyLength, OfListsEqualsPackedSequences) {
  using T = TypeParam;
  at_each_level([&] {
    expect_as_packed<T>("indexed", IndexedAttention{{.causal = true, .alignment = kAlignment}});
    expect_as_packed<T>(
        "smart bird",
        SmartBirdAttention{{.keys_per_row = 6, .causal = true, .alignment = kAlignment}});
  });
}

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
