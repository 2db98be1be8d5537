// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Rows over ranks that are not at the positions of their keys: every family has the bits of one
/// process, forward and backward.
#include <gtest/gtest.h>

#include "bench/entries/all_inputs.hpp"
#include "distributed/operators.hpp"
#include "distributed/out_grads.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_key_length {

using bench::AllGrads;
using bench::AllInputs;
using bench::AllSaved;
using fovea::CausalAlignment;
using fovea::View;

constexpr Index kHeads = 4;
constexpr Index kKeyHeads = 2;
constexpr Index kBatch = 2;
constexpr Index kRows = 180;
constexpr Index kWidth = 5;
constexpr Index kValueWidth = 3;
constexpr Index kListed = 4;

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Call {
  Tensor<T> q{{kBatch, kHeads, kRows, kWidth}};
  Tensor<T> k{{kBatch, kKeyHeads, kRows, kWidth}};
  Tensor<T> v{{kBatch, kKeyHeads, kRows, kValueWidth}};
  Tensor<T> d_out{{kBatch, kHeads, kRows, kValueWidth}};
  Tensor<T> d_lse{{kBatch, kHeads, kRows, 1}};
  Tensor<T> bias{{1, kHeads, kRows, kRows}};
  Tensor<bool> mask{{1, 1, 1, kRows}};
  Tensor<T> beta{{kBatch, kKeyHeads, kRows, 1}};
  Tensor<Index> lists{{kBatch, kHeads, kRows, kListed}};
  Tensor<T> sketch_q{{kBatch, 1, kRows, 3}};
  Tensor<T> sketch_k{{kBatch, 1, kRows, 3}};
  Tensor<T> out{{kBatch, kHeads, kRows, kValueWidth}};
  Tensor<T> lse{{kBatch, kHeads, kRows, 1}};
  Tensor<Index> chosen{{kBatch, kHeads, kRows, kListed}};
  Tensor<T> d_q{{kBatch, kHeads, kRows, kWidth}};
  Tensor<T> d_k{{kBatch, kKeyHeads, kRows, kWidth}};
  Tensor<T> d_v{{kBatch, kKeyHeads, kRows, kValueWidth}};
  Tensor<T> d_bias{{1, kHeads, kRows, kRows}};
  Tensor<T> d_beta{{kBatch, kKeyHeads, kRows, 1}};
  std::vector<T> d_sink = std::vector<T>(kHeads);

  /// Calls f(tensor) for all that have rows. The mask has one for all.
  template <class F>
  static void for_each(F&& f) {
    using C = Call;
    f(&C::q), f(&C::k), f(&C::v), f(&C::d_out), f(&C::d_lse), f(&C::bias), f(&C::beta),
        f(&C::lists);
    f(&C::sketch_q), f(&C::sketch_k), f(&C::out), f(&C::lse), f(&C::chosen), f(&C::d_q);
    f(&C::d_k), f(&C::d_v), f(&C::d_bias), f(&C::d_beta);
  }
};

/// Arguments besides the tensors.
template <class T>
struct Given {
  Tensor<T> projection{{1, 1, 4, kWidth}};
  std::vector<T> slopes = {T(0.1), T(0.2), T(0), T(0.3)};
  std::vector<T> sink = {T(0), T(1), T(-1), T(0.5)};
  std::vector<Index> lengths = {};
  std::vector<Index> first_positions = {};
  bool has_bias = true;

  Given() { projection.fill(gaussian(77)); }

  AllInputs<T> inputs(const Call<T>& call) const {
    AllInputs<T> in{call.q.view(), call.k.view(), call.v.view(), lengths};
    in.first_positions = first_positions;
    in.alibi_slopes = slopes;
    in.sink = sink;
    if (has_bias) in.bias = call.bias.view();
    if (has_bias) in.mask = call.mask.view();
    in.beta = call.beta.view();
    in.indices = call.lists.view();
    in.sketch_q = call.sketch_q.view();
    in.sketch_k = call.sketch_k.view();
    in.projection = projection.view();
    return in;
  }
  AllGrads<T> grads(Call<T>& call) const {
    AllGrads<T> made{call.d_q.view(), call.d_k.view(), call.d_v.view()};
    if (has_bias) made.bias = call.d_bias.view();
    made.sink = call.d_sink;
    made.beta = call.d_beta.view();
    return made;
  }
};

template <class T>
Call<T> whole_call() {
  Call<T> call;
  std::uint64_t seed = 0;
  for (const Tensor<T>* x : {&call.q, &call.k, &call.v, &call.d_out, &call.d_lse, &call.bias,
                             &call.sketch_q, &call.sketch_k}) {
    x->fill(gaussian(++seed));
  }
  call.beta.fill([](Index b, Index h, Index n, Index d) { return uniform(hash(9, b, h, n, d)); });
  call.lists.fill([](Index b, Index h, Index n, Index c) {
    return static_cast<double>(c * 40 + static_cast<Index>(hash(10, b, h, n, c) % 40));
  });
  call.mask.fill([](Index, Index, Index, Index j) { return j % 7 == 3 ? 0.0 : 1.0; });
  return call;
}

/// The rows of a rank, with results that are to be written.
template <class T>
Call<T> part_of(const Call<T>& whole, const Sharding& rows) {
  Call<T> own;
  Call<T>::for_each([&](auto member) { own.*member = own_part(whole.*member, rows); });
  own.mask = whole.mask.in({});
  for (Tensor<T>* x :
       {&own.out, &own.lse, &own.d_q, &own.d_k, &own.d_v, &own.d_bias, &own.d_beta}) {
    x->fill(constant(77));
  }
  own.chosen.fill(constant(77));
  return own;
}

template <class T>
AllSaved<T> saved(const Call<T>& call) {
  return {.lse = call.lse.view(), .indices = call.chosen.view()};
}

template <class T, class Op>
void expect_bits_of_one(const std::string& name, const Op& op, const Given<T>& given) {
  Call<T> whole = whole_call<T>();
  const AllInputs<T> in = given.inputs(whole);
  for (Tensor<T>* x : {&whole.out, &whole.lse, &whole.d_bias, &whole.d_beta}) x->fill(constant(77));
  whole.chosen.fill(constant(77));
  op.forward(in, whole.out.view(), saved(whole));
  op.backward(in, View<const T>(whole.out.view()), saved(whole),
              out_grads<Op, T>(whole.d_out.view(), whole.d_lse.view()), given.grads(whole));
  const fovea::ThreadPool pool(2);
  for (const RowLayout& layout : layouts_of(kRows, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    Call<T> own = part_of(whole, rows);
    const std::string what = name + ", " + layout.text();
    fovea::distributed::forward(op, given.inputs(own), own.out.view(), saved(own), rows, pool);
    expect_own_part(own.out, whole.out, rows, what + ", out");
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
    fovea::distributed::backward(op, given.inputs(own), own.out.view(), saved(own),
                                 out_grads<Op, T>(own.d_out.view(), own.d_lse.view()),
                                 given.grads(own), rows, pool);
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    expect_own_part(own.d_bias, whole.d_bias, rows, what + ", d_bias");
    expect_own_part(own.d_beta, whole.d_beta, rows, what + ", d_beta");
    EXPECT_EQ(own.d_sink, whole.d_sink) << what;
  }
}

template <class T, class F>
void for_each_operator(CausalAlignment alignment, const F& f) {
  using namespace fovea;
  const FullAttention causal{{.causal = true,
                              .alignment = alignment,
                              .soft_cap = 2.5,
                              .dropout = {.probability = 0.3, .seed = 99}}};
  f("causal", causal);
  f("modified", ModifiedAttention(causal, NearerIsMore{}));
  f("window", LocalAttention{{.left = 20, .right = 3, .alignment = alignment}});
  f("strided",
    StridedAttention{{.stride = 16, .heads = HeadAssignment::merged, .alignment = alignment}});
  f("Longformer",
    LongformerAttention{{.left = 9, .right = 9, .first_global = 3, .alignment = alignment}});
  f("linear", LinearAttention<EluPlusOne>{{.causal = true, .alignment = alignment}});
  f("FMM",
    FmmAttention<EluPlusOne, DeltaRule<EluPlusOne>>{{.band = {.left = 9}, .alignment = alignment}});
  f("delta", DeltaRuleAttention<EluPlusOne>{{.alignment = alignment}});
  f("Performer", PerformerAttention{{.causal = true, .alignment = alignment}});
  f("lists", IndexedAttention{{.causal = true, .alignment = alignment}});
  f("Smart Bird",
    SmartBirdAttention{{.keys_per_row = kListed, .causal = true, .alignment = alignment}});
}

TEST(DistributedKeyLength, EqualsOneProcess) {
  Given<float> given;
  given.lengths = {kRows, 97};
  for_each_operator<float>(
      CausalAlignment::key_length,
      [&](const std::string& name, const auto& op) { expect_bits_of_one(name, op, given); });
}

TEST(DistributedKeyLength, EqualsOneProcessAtGivenPositions) {
  Given<OtherScalar> given;
  given.lengths = {kRows, 150};
  given.first_positions = {0, 11};
  for_each_operator<OtherScalar>(
      CausalAlignment::bottom_right,
      [&](const std::string& name, const auto& op) { expect_bits_of_one(name, op, given); });
}

TEST(DistributedKeyLength, DifferentPositionsOnRanksAreRefused) {
  Given<float> given;
  given.has_bias = false;
  given.lengths = {kRows, 97};
  const Sharding rows(all_ranks(), RowLayout::contiguous(kRows, all_ranks().size()));
  Call<float> own = part_of(whole_call<float>(), rows);
  const bool is_last = all_ranks().rank() + 1 == all_ranks().size();
  const auto message = [&](const auto& op) {
    return refusal([&] {
      fovea::distributed::forward(op, given.inputs(own), own.out.view(), saved(own), rows);
    });
  };
  const auto other = is_last ? CausalAlignment::key_length : CausalAlignment::bottom_right;
  const fovea::FullAttention causal{{.causal = true, .alignment = other}};
  const std::string text = message(causal);
  if (all_ranks().size() == 1) {
    EXPECT_EQ(text, "accepted");
  } else {
    EXPECT_NE(text.find("rows on other ranks than their keys"), std::string::npos) << text;
  }
  given.first_positions = {0, 0, 0};
  EXPECT_EQ(message(fovea::FullAttention{}),
            "rank 0: FullAttention: the number of first_positions is 3; expected 2, the batch of "
            "q, or 0");
}

}  // namespace fovea_test::distributed_key_length
