// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forward pass over ranks has the bits of one process: all patterns, layouts, lengths, types
/// and strides.
#include "fovea/distributed/softmax_forward.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "distributed/operators.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_softmax_forward {

using fovea::Compute;
using fovea::FullAttention;
using fovea::SoftmaxInputs;
using fovea::SoftmaxSaved;

const Layout kRowsFirst = {.order = {0, 2, 1, 3}, .offset = 3, .gap = 5};

/// The tensors of a whole sequence.
template <class T>
struct Problem {
  Problem(Index batch, Index query_heads, Index key_heads, Index rows, Index width,
          Index value_width)
      : q({batch, query_heads, rows, width}),
        k({batch, key_heads, rows, width}),
        v({batch, key_heads, rows, value_width}),
        out({batch, query_heads, rows, value_width}),
        lse({batch, query_heads, rows, 1}) {
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
  }

  SoftmaxInputs<T> inputs(const Tensor<T>& queries, const Tensor<T>& keys,
                          const Tensor<T>& values) const {
    SoftmaxInputs<T> in = more;
    in.q = queries.view();
    in.k = keys.view();
    in.v = values.view();
    return in;
  }

  Tensor<T> q, k, v, out;
  Tensor<Compute<T>> lse;
  SoftmaxInputs<T> more;  // other inputs
};

/// Compares a call over ranks with one process.
template <class Op, class T>
void expect_same(const std::string& name, const Op& op, const Problem<T>& problem,
                 const RowLayout& layout) {
  const Sharding rows(all_ranks(), layout);
  const Tensor<T> q = own_part(problem.q, rows, kRowsFirst);
  const Tensor<T> k = own_part(problem.k, rows, kRowsFirst);
  const Tensor<T> v = own_part(problem.v, rows);
  const Tensor<T> out(own_part(problem.out, rows).shape(), kRowsFirst);
  const Tensor<Compute<T>> lse(own_part(problem.lse, rows).shape());
  fovea::distributed::forward(op, problem.inputs(q, k, v), out.view(), SoftmaxSaved<T>{lse.view()},
                              rows);
  const std::string what = name + ", " + std::to_string(layout.rows()) + " rows";
  expect_own_part(out, problem.out, rows, what + ", out");
  expect_own_part(lse, problem.lse, rows, what + ", lse");
  EXPECT_EQ(out.changed_gaps(), 0);
}

template <class Op, class T>
void check(const std::string& name, const Op& op, const Problem<T>& problem) {
  op.forward(problem.inputs(problem.q, problem.k, problem.v), problem.out.view(),
             SoftmaxSaved<T>{problem.lse.view()});
  for (const RowLayout& layout : layouts_of(problem.q.shape()[2], all_ranks().size())) {
    expect_same(name, op, problem, layout);
  }
}

TEST(DistributedForward, EqualsOneProcess) {
  for (const Index rows : {1, 6, 333}) {
    const Problem<float> problem(2, 4, 2, rows, 5, 7);
    for_each_softmax_operator(
        rows, [&](const std::string& name, const auto& op) { check(name, op, problem); });
    check("FAT", fovea::FatAttention{}, problem);
  }
}

TEST(DistributedForward, EqualsOneProcessInOtherTypes) {
  const Problem<OtherScalar> doubles(1, 2, 2, 200, 5, 3);
  const Problem<Eigen::half> halves(1, 2, 1, 200, 6, 3);
  for_each_softmax_operator(200, [&](const std::string& name, const auto& op) {
    check(name, op, doubles);
    if (name == "causal" || name == "strided, merged") check(name, op, halves);
  });
}

/// Keys of long sequences come in stages, at whose ends the sums of a segment are closed.
TEST(DistributedForward, EqualsOneProcessInStages) {
  for (const Index rows : {4 * fovea::kKeySegment, 4 * fovea::kKeySegment + 333}) {
    const Problem<float> problem(1, 1, 1, rows, 3, 2);
    check("full", FullAttention{}, problem);
    check("causal", FullAttention{{.causal = true}}, problem);
    check("long window", fovea::LocalAttention{{.left = 4500, .right = 100}}, problem);
  }
}

TEST(DistributedForward, TakesLengthsSlopesAndSinks) {
  Problem<float> problem(2, 4, 2, 150, 5, 7);
  const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  const std::vector<float> sinks = {1, -2, 0.5F, 3};
  const std::vector<Index> lengths = {150, 97};
  problem.more.alibi_slopes = slopes;
  problem.more.sink = sinks;
  problem.more.key_lengths = lengths;
  check("causal", FullAttention{{.causal = true}}, problem);
  check("window", fovea::LocalAttention{{.left = 30, .right = 20}}, problem);
}

/// Keys that no row of a rank sees have no effect on that rank.
TEST(DistributedForward, InvisibleRowsMayContainAnything) {
  Problem<float> problem(1, 2, 2, 300, 5, 7);
  const fovea::StridedAttention op{{.stride = 16}};
  const auto poison = std::numeric_limits<float>::quiet_NaN();
  for (Index d = 0; d < 5; ++d) problem.k(0, 0, 299, d) = poison;
  for (Index d = 0; d < 7; ++d) problem.v(0, 1, 299, d) = poison;
  check("strided", op, problem);
}

/// A row that is needed goes over once, and no other.
TEST(DistributedForward, SendsWhatIsNeededOnce) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const Sharding rows(all_ranks(), RowLayout::contiguous(200, 2));
  const Problem<float> problem(1, 2, 1, 200, 5, 7);
  const Tensor<float> q = own_part(problem.q, rows);
  const Tensor<float> k = own_part(problem.k, rows);
  const Tensor<float> v = own_part(problem.v, rows);
  const Tensor<float> out(own_part(problem.out, rows).shape());
  const auto sent = [&](const auto& op) {
    return fovea::distributed::forward(op, problem.inputs(q, k, v), out.view(), rows).bytes_sent;
  };
  const bool is_first = all_ranks().rank() == 0;
  constexpr Index row = (5 + 7) * 4;
  EXPECT_EQ(sent(fovea::LocalAttention{{.left = 9, .right = 4}}), (is_first ? 9 : 4) * row);
  EXPECT_EQ(sent(FullAttention{{.causal = true}}), (is_first ? 100 : 0) * row);
  EXPECT_EQ(sent(FullAttention{}), 100 * row);
}

TEST(DistributedForward, RunsOnThreads) {
  const Problem<float> problem(1, 2, 2, 500, 16, 16);
  const FullAttention op{{.causal = true}};
  op.forward(problem.inputs(problem.q, problem.k, problem.v), problem.out.view());
  const Sharding rows(all_ranks(), RowLayout::zigzag(500, all_ranks().size()));
  const Tensor<float> q = own_part(problem.q, rows);
  const Tensor<float> k = own_part(problem.k, rows);
  const Tensor<float> v = own_part(problem.v, rows);
  const Tensor<float> out(own_part(problem.out, rows).shape());
  fovea::ThreadPool pool(3);
  fovea::distributed::forward(op, problem.inputs(q, k, v), out.view(), rows, pool);
  expect_own_part(out, problem.out, rows, "with threads");
}

class DistributedErrors : public testing::Test {
 protected:
  template <class Op = FullAttention>
  std::string refused(const SoftmaxInputs<float>& in, const Tensor<float>& to,
                      const Op& op = Op()) {
    return refusal([&] { fovea::distributed::forward(op, in, to.view(), rows); });
  }

  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": FullAttention: ";
  const Sharding rows{all_ranks(), RowLayout::contiguous(70, all_ranks().size())};
  const Problem<float> problem{1, 2, 2, 70, 5, 7};
  const Tensor<float> q = own_part(problem.q, rows);
  const Tensor<float> k = own_part(problem.k, rows);
  const Tensor<float> v = own_part(problem.v, rows);
  const Tensor<float> out = own_part(problem.out, rows);
  const SoftmaxInputs<float> good = problem.inputs(q, k, v);
};

TEST_F(DistributedErrors, OneRankWithAWrongTensor) {
  const Index own = rows.layout().count(last);
  const Tensor<float> longer({1, 2, own + 1, 5});
  SoftmaxInputs<float> in = good;
  if (is_last) in.k = longer.view();
  EXPECT_EQ(refused(in, out), begin + "k has " + std::to_string(own + 1) + " rows; expected " +
                                  std::to_string(own) + ", the rows of rank " +
                                  std::to_string(last));
  in = good;
  const Tensor<float> narrow({1, 2, own, 3});
  if (is_last) in.k = narrow.view();
  const std::string text = refused(in, out);
  EXPECT_TRUE(text.starts_with(begin + "k has width ")) << text;
  const Tensor<float> none({1, 2, own, 6});
  const std::string of_out = refused(good, is_last ? none : out);
  EXPECT_TRUE(of_out.starts_with(begin + "out has shape 1x2x")) << of_out;
  EXPECT_EQ(refused(good, out), "accepted");
}

TEST_F(DistributedErrors, ErrorsOfTheWholeSequence) {
  SoftmaxInputs<float> in = good;
  const std::vector<Index> ends = {0, 70};
  if (is_last) in.cu_seqlens_q = ends;
  EXPECT_EQ(refused(in, out),
            begin + "cu_seqlens must not be given: the sequence is distributed over ranks");
  in = good;
  const std::vector<Index> lengths = {71};
  if (is_last) in.key_lengths = lengths;
  EXPECT_EQ(refused(in, out),
            begin + "key_lengths[0] is 71; expected 0 to 70, the rows of the sequence");
}

TEST_F(DistributedErrors, RanksThatMakeDifferentCalls) {
  if (last == 0) GTEST_SKIP() << "one rank does one thing";
  std::string text;
  if (is_last) {
    text = refused(good, out, fovea::LocalAttention{});
  } else {
    text = refused(good, out);
  }
  const std::string first = "rank " + std::to_string(last) + " calls LocalAttention.forward of 70 ";
  EXPECT_EQ(text.substr(0, first.size()), first);
  EXPECT_NE(text.find("where rank 0 calls FullAttention.forward"), std::string::npos) << text;
  // Tensors of another width on one rank fit each other there, and no other rank.
  const Index own = rows.layout().count(last);
  const Tensor<float> wide_q({1, 2, own, 6});
  SoftmaxInputs<float> in = good;
  if (is_last) {
    in.q = wide_q.view();
    in.k = wide_q.view();
  }
  text = refused(in, out);
  EXPECT_NE(text.find("q 1x2x6"), std::string::npos) << text;
  EXPECT_NE(text.find("q 1x2x5"), std::string::npos) << text;
}

/// A rank that cannot even begin does not let the others wait.
TEST_F(DistributedErrors, AnArenaExecutorInUse) {
  Refusing executor{is_last};
  EXPECT_EQ(refusal([&] {
              fovea::distributed::forward(FullAttention{}, good, out.view(), rows, executor);
            }),
            "rank " + std::to_string(last) + ": Memory: in use");
  executor.refuses = false;
  EXPECT_EQ(refusal([&] {
              fovea::distributed::forward(FullAttention{}, good, out.view(), rows, executor);
            }),
            "accepted");
}

/// A rank whose threads break in the middle still sends what others need, and all hear of it.
TEST_F(DistributedErrors, AnExceptionInATask) {
  const Problem<float> large(1, 8, 2, 3000, 5, 7);
  const Sharding sharded(all_ranks(), RowLayout::zigzag(3000, all_ranks().size()));
  const Tensor<float> lq = own_part(large.q, sharded);
  const Tensor<float> lk = own_part(large.k, sharded);
  const Tensor<float> lv = own_part(large.v, sharded);
  const Tensor<float> to = own_part(large.out, sharded);
  Breaking executor{is_last};
  try {
    fovea::distributed::forward(FullAttention{}, large.inputs(lq, lk, lv), to.view(), sharded,
                                executor);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), "rank " + std::to_string(last) + ": the thread broke");
  }
}

}  // namespace fovea_test::distributed_softmax_forward
