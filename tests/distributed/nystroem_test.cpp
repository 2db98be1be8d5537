// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Nystroem attention over ranks has the bits of one process.
#include "fovea/distributed/nystroem_backward.hpp"

#include <gtest/gtest.h>

#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/nystroem_forward.hpp"
#include "fovea/kernels/softmax/block.hpp"
#include "support/executors.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_nystroem {

using fovea::kKeySegment;
using fovea::NystroemAttention;
using fovea::NystroemGrads;
using fovea::NystroemInputs;
using fovea::NystroemSaved;
using fovea::NystroemScale;
using fovea::View;

/// Batch, heads, rows and landmarks of a call.
struct Sizes {
  Index batch, query_heads, key_heads, rows, landmarks;
};

/// All tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  explicit Tensors(const Sizes& s, double size_of_queries = 1)
      : q({s.batch, s.query_heads, s.rows, 5}),
        k({s.batch, s.key_heads, s.rows, 5}),
        v({s.batch, s.key_heads, s.rows, 7}),
        out({s.batch, s.query_heads, s.rows, 7}),
        lse({s.batch, s.query_heads, s.rows, 1}),
        landmark_lse({s.batch, s.query_heads, s.landmarks, 1}),
        landmark_values({s.batch, s.query_heads, s.landmarks, 7}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()) {
    q.fill(gaussian(1, size_of_queries));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    d_out.fill(gaussian(4));
  }
  Tensors(const Tensors& whole, const Sharding& rows)
      : q(own_part(whole.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows)),
        out(own_part(whole.out, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        lse(own_part(whole.lse, rows)),
        landmark_lse(whole.landmark_lse.shape()),
        landmark_values(whole.landmark_values.shape()),
        d_out(own_part(whole.d_out, rows)),
        d_q(own_part(whole.d_q, rows)),
        d_k(own_part(whole.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(whole.d_v, rows)),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &lse, &landmark_lse, &landmark_values, &d_q, &d_k, &d_v}) {
      x->fill(constant(77));
    }
  }

  NystroemInputs<T> inputs() const {
    return {.q = q.view(), .k = k.view(), .v = v.view(), .key_lengths = lengths};
  }
  NystroemSaved<T> saved() const {
    return {lse.view(), landmark_lse.view(), landmark_values.view()};
  }
  NystroemGrads<T> grads() const {
    NystroemGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    return all;
  }

  Tensor<T> q, k, v, out, lse, landmark_lse, landmark_values;
  Tensor<T> d_out, d_q, d_k, d_v;
  std::vector<Index> lengths;
};

/// Expects that all ranks have the bits of the whole.
template <class T>
void expect_all(const Tensor<T>& got, const Tensor<T>& whole, const std::string& what) {
  const std::vector<T> a = got.values();
  const std::vector<T> b = whole.values();
  EXPECT_TRUE(a.size() == b.size() &&
              (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0))
      << what;
}

template <class T>
void check(const NystroemAttention& op, const Tensors<T>& whole,
           const AnyExecutor& executor = in_this_thread()) {
  op.forward(whole.inputs(), whole.out.view(), whole.saved());
  op.backward(whole.inputs(), View<const T>(whole.out.view()), whole.saved(),
              View<const T>(whole.d_out.view()), whole.grads());
  bool has_landmarks = true;
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Tensors<T> own(whole, rows);
    fovea::distributed::forward(op, own.inputs(), own.out.view(), own.saved(), rows, executor);
    const std::string what = layout.text();
    expect_own_part(own.out, whole.out, rows, what + ", out");
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
    expect_all(own.landmark_lse, whole.landmark_lse, what + ", landmark_lse");
    expect_all(own.landmark_values, whole.landmark_values, what + ", landmark_values");
    EXPECT_EQ(own.out.changed_gaps(), 0);
    NystroemSaved<T> saved = own.saved();
    if (!has_landmarks) saved = {.lse = saved.lse};
    fovea::distributed::backward(op, own.inputs(), View<const T>(own.out.view()), saved,
                                 View<const T>(own.d_out.view()), own.grads(), rows, executor);
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    EXPECT_EQ(own.d_k.changed_gaps(), 0);
    has_landmarks = !has_landmarks;
  }
}

NystroemAttention with(Index landmarks, NystroemScale scale = NystroemScale::matrix) {
  return NystroemAttention({.landmarks = landmarks, .first_scale = scale});
}

TEST(DistributedNystroem, EqualsOneProcess) {
  for (const Index rows : {4, 12, 336}) {
    check(with(4), Tensors<float>({2, 4, 2, rows, 4}));
    check(with(2, NystroemScale::batch_max), Tensors<float>({2, 4, 4, rows, 2}));
  }
  check(with(1), Tensors<float>({1, 2, 1, 1, 1}));
}

TEST(DistributedNystroem, EqualsOneProcessInDouble) {
  check(with(8), Tensors<OtherScalar>({1, 2, 1, 2 * kKeySegment + 88, 8}));
}

TEST(DistributedNystroem, SupportsKeyLengths) {
  Tensors<float> whole({4, 2, 2, 2 * kKeySegment + 96, 16});
  whole.lengths = {2 * kKeySegment + 96, 0, 160, kKeySegment + 32};
  check(with(16, NystroemScale::batch_max), whole);
}

TEST(DistributedNystroem, RunsOnThreads) {
  fovea::ThreadPool pool(3);
  check(with(64), Tensors<float>({1, 8, 4, 1536, 64}), AnyExecutor::of(pool));
}

/// The rounding error of a large lse is computed over landmarks and over all keys.
TEST(DistributedNystroem, EqualsOneProcessIfLseIsLarge) {
  const Tensors<float> whole({1, 2, 1, kKeySegment + 80, 4}, 9000);
  check(with(4), whole);
  for (const Tensor<float>* lse : {&whole.lse, &whole.landmark_lse}) {
    Index large = 0;
    for (const float x : lse->values()) large += std::abs(x) > fovea::kLargeLse ? 1 : 0;
    EXPECT_GT(large, 4);
  }
}

TEST(DistributedNystroem, RefusesMismatches) {
  const int ranks = all_ranks().size();
  const bool is_last = all_ranks().rank() == ranks - 1;
  const std::string begin = "rank " + std::to_string(ranks - 1) + ": NystroemAttention: ";
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, ranks));
  const Tensors<float> own(Tensors<float>({1, 2, 1, 40, 4}), rows);
  const auto forward = [&](const NystroemAttention& op, const NystroemInputs<float>& in) {
    return refusal([&] { fovea::distributed::forward(op, in, own.out.view(), rows); });
  };
  std::string text = forward(with(7), own.inputs());
  EXPECT_EQ(text,
            "rank 0: NystroemAttention: q has 40 rows; expected a multiple of 7, the landmarks");
  NystroemInputs<float> in = own.inputs();
  const std::vector<Index> lengths = {18};
  if (is_last) in.key_lengths = lengths;
  text = forward(with(4), in);
  EXPECT_EQ(text, begin + "key_lengths[0] is 18; expected a multiple of 4, the landmarks");
  in = own.inputs();
  const Tensor<float> wrong({1, 1, 41, 5});
  if (is_last) in.k = wrong.view();
  text = forward(with(4), in);
  EXPECT_EQ(text.substr(0, text.find(';')), begin + "k has 41 rows") << text;
  if (ranks > 1) {
    text = forward(with(is_last ? 2 : 4), own.inputs());
    EXPECT_NE(text.find(", options {2, "), std::string::npos) << text;
    const NystroemSaved<float> lse = {.lse = own.lse.view()};
    text = refusal([&] {
      fovea::distributed::backward(with(4), own.inputs(), View<const float>(own.out.view()),
                                   is_last ? lse : own.saved(), View<const float>(own.d_out.view()),
                                   own.grads(), rows);
    });
    EXPECT_NE(text.find(", landmarks saved"), std::string::npos) << text;
  }
  for (const Tensor<float>* x : {&own.out, &own.d_q, &own.d_k, &own.d_v}) {
    for (const float n : x->values()) EXPECT_EQ(n, 77);
  }
}

/// However many rows there are, means and running softmaxes of landmarks go to the next range and
/// to all.
TEST(DistributedNystroem, SendsLandmarks) {
  const int ranks = all_ranks().size();
  const Index messages = all_ranks().rank() == ranks - 1 ? ranks - 1 : 1;
  for (const Index segments : {1, 2}) {
    const Index count = ranks * segments * kKeySegment;
    const Sharding rows(all_ranks(), RowLayout::contiguous(count, ranks));
    const Tensors<float> own(Tensors<float>({1, 4, 2, count, 8}), rows);
    const Index sent =
        fovea::distributed::forward(with(8), own.inputs(), own.out.view(), rows).bytes_sent;
    const Index numbers = (4 + 2) * (8 + 1) * 5 + 4 * 8 * (7 + 3);
    EXPECT_EQ(sent, messages * numbers * Index{sizeof(float)});
  }
}

TEST(DistributedNystroem, AllocatesInAnArena) {
  fovea::Arena arena(Index{1} << 27);
  fovea::ThreadPool pool(2);
  const AnyExecutor executor = AnyExecutor::of(pool, &arena);
  check(with(8), Tensors<float>({1, 4, 2, kKeySegment + 80, 8}), executor);
  const int last = all_ranks().size() - 1;
  fovea::Arena small(all_ranks().rank() == last ? 64 : Index{1} << 24);
  auto short_of_memory = small.on(pool);
  const Sharding rows(all_ranks(), RowLayout::contiguous(40, all_ranks().size()));
  const Tensors<float> own(Tensors<float>({1, 2, 1, 40, 4}), rows);
  const std::string begin = "rank " + std::to_string(last) + ": Arena: size_bytes is 64;";
  std::string text = refusal([&] {
    fovea::distributed::forward(with(4), own.inputs(), own.out.view(), own.saved(), rows,
                                short_of_memory);
  });
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
  text = refusal([&] {
    fovea::distributed::backward(with(4), own.inputs(), View<const float>(own.out.view()),
                                 own.saved(), View<const float>(own.d_out.view()), own.grads(),
                                 rows, short_of_memory);
  });
  EXPECT_EQ(text.substr(0, begin.size()), begin) << text;
}

TEST(DistributedNystroem, SupportsSequencesWithoutRows) {
  check(with(3), Tensors<float>({2, 2, 1, 0, 3}));
}

}  // namespace fovea_test::distributed_nystroem
