// SPDX-License-Identifier: MIT
// fovea_test(RANKS NEEDS fftw)
/// \file
/// The Fourier cross over ranks has the bits of one process.
#include "fovea/distributed/hidden_state_cross.hpp"

#include <gtest/gtest.h>

#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_hidden_state_cross {

using fovea::CrossGrads;
using fovea::CrossInputs;
using fovea::HiddenStateCross;
using fovea::View;

template <class T>
struct Call {
  Call(Index batch, Index rows, Index channels)
      : f1({batch, 1, rows, channels}),
        f2(f1.shape()),
        out(f1.shape()),
        d_out(f1.shape()),
        d_f1(f1.shape()),
        d_f2(f1.shape()) {
    f1.fill(gaussian(1));
    f2.fill(gaussian(2));
    d_out.fill(gaussian(3));
  }
  Call(const Call& whole, const Sharding& rows)
      : f1(own_part(whole.f1, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        f2(own_part(whole.f2, rows)),
        out(own_part(whole.out, rows, {.order = {0, 1, 2, 3}, .gap = 2})),
        d_out(own_part(whole.d_out, rows)),
        d_f1(own_part(whole.d_f1, rows)),
        d_f2(own_part(whole.d_f2, rows)),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &d_f1, &d_f2}) x->fill(constant(77));
  }

  CrossInputs<T> inputs() const { return {f1.view(), f2.view(), lengths}; }
  CrossGrads<T> grads() const { return {d_f1.view(), d_f2.view()}; }

  Tensor<T> f1, f2, out, d_out, d_f1, d_f2;
  std::vector<Index> lengths;
};

template <class T>
void check(const Call<T>& whole, const AnyExecutor& executor = in_this_thread()) {
  const HiddenStateCross op;
  op.forward(whole.inputs(), whole.out.view());
  op.backward(whole.inputs(), View<const T>(whole.d_out.view()), whole.grads());
  const Index count = whole.f1.shape()[2];
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Call<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), rows, executor);
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.d_out.view()), own.grads(),
                                 rows, executor);
    const std::string what = std::to_string(count) + " rows";
    expect_own_part(own.out, whole.out, rows, what);
    expect_own_part(own.d_f1, whole.d_f1, rows, what + ", d_f1");
    expect_own_part(own.d_f2, whole.d_f2, rows, what + ", d_f2");
    EXPECT_EQ(own.out.changed_gaps(), 0);
  }
}

TEST(DistributedCross, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) check(Call<float>(2, rows, 24));
}

/// Some ranks have no channel.
TEST(DistributedCross, EqualsOneProcessWithFewChannels) { check(Call<float>(1, 100, 2)); }

TEST(DistributedCross, EqualsOneProcessForManyColumns) { check(Call<OtherScalar>(1, 700, 9)); }

TEST(DistributedCross, SupportsKeyLengths) {
  Call<float> whole(3, 300, 20);
  whole.lengths = {300, 131, 0};
  check(whole);
}

TEST(DistributedCross, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check(Call<float>(1, 1000, 40), AnyExecutor::of(pool));
}

/// Ranks may want different gradients.
TEST(DistributedCross, WritesRequestedGradients) {
  const Call<float> whole(1, 60, 10);
  const HiddenStateCross op;
  op.backward(whole.inputs(), View<const float>(whole.d_out.view()), whole.grads());
  const Sharding rows(all_ranks(), RowLayout::contiguous(60, all_ranks().size()));
  const Call<float> own(whole, rows);
  auto wanted = own.grads();
  const bool is_even = all_ranks().rank() % 2 == 0;
  if (is_even) wanted.f2 = {};
  fovea::distributed::backward(op, own.inputs(), View<const float>(own.d_out.view()), wanted, rows);
  expect_if_wanted(true, own.d_f1, whole.d_f1, rows);
  expect_if_wanted(!is_even, own.d_f2, whole.d_f2, rows);
}

TEST(DistributedCross, RefusesMismatches) {
  const Call<float> whole(1, 40, 6);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Call<float> own(whole, rows);
  const int last = all_ranks().size() - 1;
  auto in = own.inputs();
  if (all_ranks().rank() == last) in.f2 = {};
  const auto refused = [&](const CrossInputs<float>& inputs) {
    return refusal(
        [&] { fovea::distributed::forward(HiddenStateCross{}, inputs, own.out.view(), rows); });
  };
  std::string text = refused(in);
  const std::string begin = "rank " + std::to_string(last) + ": HiddenStateCross: ";
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
  const std::vector<Index> lengths = {41};
  in = own.inputs();
  in.key_lengths = lengths;
  text = refused(in);
  EXPECT_NE(text.find("41"), std::string::npos) << text;
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_hidden_state_cross
