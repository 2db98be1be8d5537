// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// Bias and mask over ranks: each rank has the rows of its queries, and the bits are those of one
/// process.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_bias {

using fovea::Compute;
using fovea::FullAttention;
using fovea::LongformerAttention;
using fovea::SoftmaxInputs;
using fovea::SoftmaxSaved;
using fovea::View;

const Layout kRowsFirst = {.order = {0, 2, 1, 3}, .offset = 3, .gap = 5};
const Layout kColumnsApart = {.order = {0, 1, 3, 2}, .offset = 1, .gap = 2};

/// The tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  Tensor<T> q, k, v, out;
  Tensor<Compute<T>> lse;
  Tensor<Compute<T>> bias;
  Tensor<bool> mask;
  Tensor<T> d_out, d_q, d_k, d_v;
  Tensor<Compute<T>> d_bias;
  SoftmaxInputs<T> more = {};  // other inputs

  template <class In = SoftmaxInputs<T>>
  In inputs() const {
    In in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    if (bias.shape()[3] > 0) in.bias = bias.view();
    if (mask.shape()[3] > 0) in.mask = mask.view();
    in.key_lengths = more.key_lengths;
    in.alibi_slopes = more.alibi_slopes;
    in.sink = more.sink;
    return in;
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }
  /// \param has_bias whether the gradient of bias is requested, too
  template <class Grads>
  Grads grads(bool has_bias) const {
    Grads all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    if (has_bias) all.bias = d_bias.view();
    return all;
  }
};

/// \param bias, mask their shapes; omitted if the width is 0
template <class T>
Tensors<T> whole_problem(Index batch, Index query_heads, Index key_heads, Index rows,
                         const Shape& bias, const Shape& mask) {
  Tensors<T> t{Tensor<T>({batch, query_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 7}),
               Tensor<T>({batch, query_heads, rows, 7}),
               Tensor<Compute<T>>({batch, query_heads, rows, 1}),
               Tensor<Compute<T>>(bias),
               Tensor<bool>(mask),
               Tensor<T>({batch, query_heads, rows, 7}),
               Tensor<T>({batch, query_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 7}),
               Tensor<Compute<T>>(bias)};
  t.q.fill(gaussian(1));
  t.k.fill(gaussian(2));
  t.v.fill(gaussian(3));
  t.d_out.fill(gaussian(6));
  const Fill numbers = gaussian(4);
  t.bias.fill([&](Index b, Index h, Index n, Index d) {
    const double x = numbers(b, h, n, d);
    return x > 2 ? -std::numeric_limits<double>::infinity() : x;
  });
  const Fill draws = gaussian(5);
  t.mask.fill([&](Index b, Index h, Index n, Index d) { return draws(b, h, n, d) < 1 ? 1 : 0; });
  return t;
}

template <class T>
Tensors<T> parts_of(const Tensors<T>& whole, const Sharding& rows) {
  Tensors<T> own{own_part(whole.q, rows, kRowsFirst),
                 own_part(whole.k, rows),
                 own_part(whole.v, rows, kRowsFirst),
                 own_part(whole.out, rows),
                 own_part(whole.lse, rows),
                 own_logits(whole.bias, rows, kColumnsApart),
                 own_logits(whole.mask, rows, kRowsFirst),
                 own_part(whole.d_out, rows),
                 own_part(whole.d_q, rows),
                 own_part(whole.d_k, rows),
                 own_part(whole.d_v, rows),
                 own_logits(whole.d_bias, rows, kRowsFirst),
                 whole.more};
  for (const Tensor<T>* x : {&own.out, &own.d_q, &own.d_k, &own.d_v}) x->fill(constant(77));
  for (const Tensor<Compute<T>>* x : {&own.lse, &own.d_bias}) x->fill(constant(77));
  return own;
}

template <class T>
std::string text_of(const std::string& name, const Tensors<T>& whole) {
  return name + ", " + std::to_string(whole.q.shape()[2]) + " rows, bias " +
         fovea::to_string(whole.bias.shape()) + ", mask " + fovea::to_string(whole.mask.shape());
}

template <class Op, class T, class E = fovea::Serial>
void check_forward(const std::string& name, const Op& op, const Tensors<T>& whole,
                   E&& executor = {}) {
  using In = fovea::InputsOf<Op, T>;
  op.forward(whole.template inputs<In>(), whole.out.view(), whole.saved());
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const Tensors<T> own = parts_of(whole, rows);
    fovea::distributed::forward(op, own.template inputs<In>(), own.out.view(), own.saved(), rows,
                                executor);
    expect_own_part(own.out, whole.out, rows, text_of(name, whole) + ", out");
    expect_own_part(own.lse, whole.lse, rows, text_of(name, whole) + ", lse");
  }
}

/// Also the gradients: that of a bias, too, unless it has one row for all.
template <class Op, class T, class E = fovea::Serial>
void check(const std::string& name, const Op& op, const Tensors<T>& whole, E&& executor = {}) {
  using In = fovea::InputsOf<Op, T>;
  using Grads = fovea::GradsOf<Op, T>;
  check_forward(name, op, whole, executor);
  const Index count = whole.q.shape()[2];
  const bool has_bias = whole.bias.shape()[3] > 0 && (whole.bias.shape()[2] > 1 || count == 1);
  op.backward(whole.template inputs<In>(), View<const T>(whole.out.view()), whole.saved(),
              View<const T>(whole.d_out.view()), whole.template grads<Grads>(has_bias));
  for (const RowLayout& layout : layouts_of(count, all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    Tensors<T> own = parts_of(whole, rows);
    own.out = own_part(whole.out, rows);
    own.lse = own_part(whole.lse, rows);
    fovea::distributed::backward(op, own.template inputs<In>(), View<const T>(own.out.view()),
                                 own.saved(), View<const T>(own.d_out.view()),
                                 own.template grads<Grads>(has_bias), rows, executor);
    const std::string what = text_of(name, whole);
    expect_own_part(own.d_q, whole.d_q, rows, what + ", d_q");
    expect_own_part(own.d_k, whole.d_k, rows, what + ", d_k");
    expect_own_part(own.d_v, whole.d_v, rows, what + ", d_v");
    if (has_bias) expect_own_part(own.d_bias, whole.d_bias, rows, what + ", d_bias");
    EXPECT_EQ(own.d_bias.changed_gaps(), 0);
  }
}

/// Shapes of bias and mask, of batch 2 and 4 heads.
std::vector<std::pair<Shape, Shape>> all_shapes(Index rows) {
  return {{{2, 4, rows, rows}, {}},
          {{}, {2, 4, rows, rows}},
          {{1, 4, rows, rows}, {2, 1, 1, rows}},
          {{2, 1, 1, rows}, {1, 1, rows, rows}},
          {{1, 1, rows, 1}, {1, 4, 1, 1}}};
}

TEST(DistributedBias, EqualsOneProcess) {
  for (const Index rows : {1, 6}) {
    for (const auto& [bias, mask] : all_shapes(rows)) {
      const auto whole = whole_problem<float>(2, 4, 2, rows, bias, mask);
      check("causal", FullAttention{{.causal = true}}, whole);
    }
  }
  for (const auto& [bias, mask] : all_shapes(190)) {
    const auto whole = whole_problem<float>(2, 4, 2, 190, bias, mask);
    check("causal", FullAttention{{.causal = true}}, whole);
    check("window", fovea::LocalAttention{{.left = 30, .right = 11}}, whole);
  }
}

TEST(DistributedBias, EqualsOneProcessUnderEachPattern) {
  const auto whole = whole_problem<float>(2, 4, 2, 190, {1, 4, 190, 190}, {2, 1, 190, 190});
  for_each_softmax_operator(
      190, [&](const std::string& name, const auto& op) { check(name, op, whole); });
  // One bias for heads of different patterns is added to by all of them in turn.
  check("strided", fovea::StridedAttention{{.stride = 16}},
        whole_problem<float>(2, 4, 2, 190, {1, 1, 190, 190}, {}));
}

TEST(DistributedBias, EqualsOneProcessInOtherTypes) {
  const Shape bias = {1, 2, 130, 130};
  const Shape mask = {1, 1, 130, 130};
  const auto doubles = whole_problem<OtherScalar>(1, 2, 2, 130, bias, mask);
  const auto halves = whole_problem<Eigen::half>(1, 2, 1, 130, bias, mask);
  check("causal", FullAttention{{.causal = true}}, doubles);
  check("window", fovea::LocalAttention{{.left = 20, .right = 9}}, doubles);
  check_forward("causal", FullAttention{{.causal = true}}, halves);
}

TEST(DistributedBias, EqualsOneProcessInLongformer) {
  const Shape bias = {1, 2, 190, 190};
  const Shape mask = {2, 1, 190, 190};
  const auto whole = whole_problem<float>(2, 2, 1, 190, bias, mask);
  fovea::ThreadPool pool(2);
  check("Longformer", LongformerAttention{{.left = 9, .right = 5, .global = {0, 77}}}, whole, pool);
}

TEST(DistributedBias, EqualsOneProcessInStages) {
  const Index rows = 3 * fovea::kKeySegment + 100;
  const auto whole = whole_problem<float>(1, 1, 1, rows, {1, 1, 1, rows}, {1, 1, rows, 1});
  check_forward("causal", FullAttention{{.causal = true}}, whole);
}

TEST(DistributedBias, WorksWithLengthsSlopesAndSinks) {
  const std::vector<float> slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  const std::vector<float> sinks = {1, -2, 0.5F, 3};
  const std::vector<Index> lengths = {150, 97};
  auto whole = whole_problem<float>(2, 4, 2, 150, {2, 4, 150, 150}, {1, 1, 150, 150});
  whole.more.alibi_slopes = slopes;
  whole.more.sink = sinks;
  whole.more.key_lengths = lengths;
  check("causal", FullAttention{{.causal = true}}, whole);
  check("capped", FullAttention{{.causal = true, .soft_cap = 2.5}}, whole);
}

/// A large lse has a second number, which is found with the bias.
TEST(DistributedBias, WorksWithALargeLse) {
  const auto whole = whole_problem<float>(1, 2, 2, 190, {1, 2, 190, 190}, {});
  whole.q.fill(gaussian(1, 4000));
  check("causal", FullAttention{{.causal = true}}, whole);
}

/// Rows that see keys of another rank are sent to it in the columns of these keys.
TEST(DistributedBias, SendsPairs) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const Sharding rows(all_ranks(), RowLayout::contiguous(200, 2));
  const bool is_first = all_ranks().rank() == 0;
  const auto sent = [&](const auto& op, const Shape& bias, const Shape& mask) {
    const Tensors<float> own = parts_of(whole_problem<float>(1, 2, 1, 200, bias, mask), rows);
    const auto none = SoftmaxInputs<float>{own.q.view(), own.k.view(), own.v.view()};
    const auto bytes = [&](const SoftmaxInputs<float>& in) {
      return fovea::distributed::backward(op, in, View<const float>(own.out.view()), own.saved(),
                                          View<const float>(own.d_out.view()),
                                          own.grads<fovea::SoftmaxGrads<float>>(false), rows)
          .bytes_sent;
    };
    return bytes(own.inputs()) - bytes(none);
  };
  const FullAttention causal{{.causal = true}};
  const fovea::LocalAttention window{{.left = 9, .right = 4}};
  EXPECT_EQ(sent(causal, {1, 2, 200, 200}, {}), is_first ? 0 : 2 * 100 * 100 * 4);
  EXPECT_EQ(sent(causal, {}, {1, 1, 200, 200}), is_first ? 0 : 100 * 100);
  EXPECT_EQ(sent(causal, {1, 1, 200, 1}, {1, 2, 1, 200}), is_first ? 0 : 100 * 4);
  EXPECT_EQ(sent(window, {1, 1, 200, 200}, {}), (is_first ? 4 * 4 : 9 * 9) * 4);
}

TEST(DistributedBias, IsRefusedIfItsShapeIsWrong) {
  const auto whole = whole_problem<float>(1, 2, 2, 70, {1, 1, 70, 70}, {1, 1, 70, 70});
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": FullAttention: ";
  const auto refused = [&](const SoftmaxInputs<float>& in) {
    return refusal([&] { fovea::distributed::forward(FullAttention{}, in, own.out.view(), rows); });
  };
  SoftmaxInputs<float> in = own.inputs();
  const Tensor<float> narrow({1, 1, rows.own_count(), 69});
  if (is_last) in.bias = narrow.view();
  EXPECT_EQ(refused(in), begin + "bias has width 69; expected 1 or 70, the rows of the sequence");
  in = own.inputs();
  const Index own_rows = rows.layout().count(last);
  const Tensor<bool> longer({1, 1, 71, 70});
  if (is_last) in.mask = longer.view();
  EXPECT_EQ(refused(in), begin + "mask has 71 rows; expected 1 or " + std::to_string(own_rows) +
                             ", the rows of q");
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
  if (last == 0) return;
  in = own.inputs();
  if (is_last) in.bias = {};
  const std::string text = refused(in);
  EXPECT_NE(text.find(", bias 1x1x70"), std::string::npos) << text;
}

/// A gradient that is the sum over the rows of all ranks, and ranks of which one has a row for all.
TEST(DistributedBias, IsRefusedInBackwardIfItHasOneRow) {
  const auto whole = whole_problem<float>(1, 2, 2, 70, {1, 1, 1, 70}, {1, 1, 70, 70});
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const Tensors<float> own = parts_of(whole, rows);
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": FullAttention: ";
  using Grads = fovea::SoftmaxGrads<float>;
  const auto refused = [&](const SoftmaxInputs<float>& in, const Grads& grads) {
    return refusal([&] {
      fovea::distributed::backward(FullAttention{}, in, View<const float>(own.out.view()),
                                   own.saved(), View<const float>(own.d_out.view()), grads, rows);
    });
  };
  EXPECT_EQ(refused(own.inputs(), own.grads<Grads>(is_last)),
            begin +
                "the gradient of bias must not be given: bias has one row for all queries, and "
                "sums over distributed rows are not computed");
  if (last == 0) return;
  SoftmaxInputs<float> in = own.inputs();
  const Tensor<float> other({1, 1, rows.own_count(), 70});
  if (is_last) in.bias = other.view();
  EXPECT_EQ(refused(in, own.grads<Grads>(false)),
            begin + "bias has " + std::to_string(rows.layout().count(last)) +
                " rows; expected 1, the rows of bias on another rank");
  for (const float x : own.d_q.values()) EXPECT_EQ(x, 77);
}

}  // namespace fovea_test::distributed_bias
