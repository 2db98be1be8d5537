// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Longformer attention over ranks has the bits of one process, with and without projections of
/// global rows.
#include "fovea/distributed/longformer.hpp"

#include <gtest/gtest.h>

#include "distributed/rank_call.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_longformer {

using fovea::LongformerAttention;
using fovea::LongformerOptions;

/// A call with projections of global rows, or without.
template <class T>
struct Call : OperatorCall<LongformerAttention, T> {
  explicit Call(const SquareSequence& s, bool has_global = true, const Extras& extras = {})
      : OperatorCall<LongformerAttention, T>(s, extras) {
    if (!has_global) return;
    add_global("global_q", "d_global_q", this->q, s.seed + 1000);
    add_global("global_k", "d_global_k", this->k, s.seed + 1001);
    add_global("global_v", "d_global_v", this->v, s.seed + 1002);
  }

 private:
  void add_global(const char* name, const char* gradient, const ShardedTensor<T>& like,
                  std::uint64_t seed) {
    this->add(name, Role::read, Held::rows, like.whole.shape(), gaussian(seed));
    this->add(gradient, Role::gradient, Held::rows, like.whole.shape());
  }
};

template <class T>
void check(const LongformerOptions& options, Call<T>&& call) {
  const fovea::ThreadPool pool(2);
  expect_one_process(LongformerAttention(options), call, AnyExecutor::of(pool));
}

/// Options that differ in what is global. \param rows of the sequence
std::vector<LongformerOptions> all_options(Index rows) {
  std::vector<LongformerOptions> all;
  all.push_back({.left = 9, .right = 5, .first_global = std::min<Index>(rows, 3)});
  all.push_back({.left = 20, .right = 0, .first_global = 1, .causal = true});
  all.push_back({.left = 3, .right = 3});  // none is
  if (rows > 200) {
    all.push_back({.left = 30, .right = 40, .first_global = 2, .global = {70, 71, 199}});
    all.push_back({.left = 30,
                   .right = 0,
                   .global = {rows - 1},
                   .causal = true,
                   .soft_cap = 2.5,
                   .dropout = {.probability = 0.3, .seed = 99}});
  }
  return all;
}

TEST(DistributedLongformer, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    for (const bool has_global : {false, true}) {
      for (const LongformerOptions& options : all_options(rows)) {
        check(options, Call<float>(square(2, 4, 2, rows), has_global));
      }
    }
  }
}

TEST(DistributedLongformer, EqualsOneProcessInDouble) {
  for (const LongformerOptions& options : all_options(250)) {
    for (const Role d_lse : {Role::none, Role::read}) {
      Call<OtherScalar> call(square(1, 2, 2, 250));
      call.d_lse.role = d_lse;
      check(options, std::move(call));
    }
  }
}

/// The keys of global rows come in stages where there are many.
TEST(DistributedLongformer, EqualsOneProcessInStages) {
  check({.left = 9, .right = 5, .global = {0, 5000}},
        Call<float>(square(1, 1, 1, 4 * fovea::kKeySegment + 100)));
}

TEST(DistributedLongformer, SupportsLengthsAndSlopes) {
  check({.left = 9, .right = 5, .global = {60, 120}},
        Call<float>(square(2, 4, 2, 250, {250, 97}), true, {.alibi = true}));
}

TEST(DistributedLongformer, SinksEqualOneProcess) {
  check({.left = 9, .right = 5, .first_global = 2},
        Call<float>(square(1, 2, 2, 200), false, {.sink = true}));
}

TEST(DistributedLongformer, RefusesInvalidArgumentsOfOneRank) {
  Call<float> call(square(1, 2, 2, 70));
  const RankCall own(LongformerAttention(), call);
  const auto with_global = [](Index token) { return LongformerAttention{{.global = {token}}}; };
  auto a = own.arguments();
  const Tensor<float> wide({1, 2, own.rows().own_count(), 6});
  if (own.is_last) a.inputs.global_k = wide.view();
  const std::string text = own.refused(a);
  EXPECT_TRUE(text.starts_with(own.begin + "global_k has shape 1x2x")) << text;
  a = own.arguments();
  if (own.is_last) a.inputs.global_q = {};
  EXPECT_EQ(own.refused(a),
            own.begin + "global_q is required: global_q, global_k and global_v belong together");
  a = own.arguments();
  EXPECT_EQ(own.refused(with_global(70), a),
            "rank 0: LongformerAttention: the last global token is 70; expected less than 70, the "
            "number of keys");
  EXPECT_EQ(own.refused(with_global(69), a), "accepted");
  if (own.last == 0) GTEST_SKIP() << "nobody to differ from";
  if (own.is_last) a.inputs.global_q = a.inputs.global_k = a.inputs.global_v = {};
  const std::string differ = own.refused(a);
  EXPECT_NE(differ.find(", projections of global rows"), std::string::npos) << differ;
}

/// A rank whose threads break in the first pass still sends what others need in the second.
TEST(DistributedLongformer, AnExceptionInATask) {
  Call<float> call(square(1, 8, 2, 3000));
  const LongformerAttention op{{.left = 9, .right = 5, .first_global = 1}};
  const RankCall own(op, call, RowLayout::zigzag(3000, all_ranks().size()));
  const Breaking executor{own.is_last};
  EXPECT_EQ(said_together([&] { own.forward(executor); }),
            "rank " + std::to_string(own.last) + ": the thread broke");
}

}  // namespace fovea_test::distributed_longformer
