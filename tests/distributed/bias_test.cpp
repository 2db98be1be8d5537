// SPDX-License-Identifier: MIT
/// \file
/// Bias and mask over ranks: each rank has the rows of its queries, and the bits are those of one
/// process.
#include <gtest/gtest.h>

#include "distributed/operators.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/longformer.hpp"
#include "fovea/distributed/softmax_forward.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"

namespace fovea_test::distributed_bias {

using fovea::Compute;
using fovea::FullAttention;
using fovea::LongformerAttention;
using fovea::SoftmaxInputs;
using fovea::SoftmaxSaved;

const Layout kRowsFirst = {.order = {0, 2, 1, 3}, .offset = 3, .gap = 5};
const Layout kColumnsApart = {.order = {0, 1, 3, 2}, .offset = 1, .gap = 2};

/// The rows of this rank of what may have one row for all.
template <class T>
Tensor<T> own_logits(const Tensor<T>& whole, const Rows& rows, const Layout& layout = {}) {
  const bool has_one_row = whole.shape()[2] == 1 && rows.count() != 1;
  return has_one_row ? whole.in(layout) : own_part(whole, rows, layout);
}

/// The tensors of a call, of the whole sequence or of a rank's rows.
template <class T>
struct Tensors {
  Tensor<T> q, k, v, out;
  Tensor<Compute<T>> lse;
  Tensor<Compute<T>> bias;
  Tensor<bool> mask;
  SoftmaxInputs<T> more = {};  // what is read beside

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
};

/// \param bias, mask their shapes; without a width there is none
template <class T>
Tensors<T> whole_problem(Index batch, Index query_heads, Index key_heads, Index rows,
                         const Shape& bias, const Shape& mask) {
  Tensors<T> t{Tensor<T>({batch, query_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 5}),
               Tensor<T>({batch, key_heads, rows, 7}),
               Tensor<T>({batch, query_heads, rows, 7}),
               Tensor<Compute<T>>({batch, query_heads, rows, 1}),
               Tensor<Compute<T>>(bias),
               Tensor<bool>(mask)};
  t.q.fill(gaussian(1));
  t.k.fill(gaussian(2));
  t.v.fill(gaussian(3));
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
Tensors<T> parts_of(const Tensors<T>& whole, const Rows& rows) {
  Tensors<T> own{own_part(whole.q, rows, kRowsFirst),
                 own_part(whole.k, rows),
                 own_part(whole.v, rows, kRowsFirst),
                 own_part(whole.out, rows),
                 own_part(whole.lse, rows),
                 own_logits(whole.bias, rows, kColumnsApart),
                 own_logits(whole.mask, rows, kRowsFirst),
                 whole.more};
  own.out.fill(constant(77));
  own.lse.fill(constant(77));
  return own;
}

template <class Op, class T, class E = fovea::Serial>
void check(const std::string& name, const Op& op, const Tensors<T>& whole, E&& executor = {}) {
  using In = fovea::InputsOf<Op, T>;
  op.forward(whole.template inputs<In>(), whole.out.view(), whole.saved());
  for (const RowLayout& layout : layouts_of(whole.q.shape()[2], all_ranks().size())) {
    const Rows rows(all_ranks(), layout);
    const Tensors<T> own = parts_of(whole, rows);
    fovea::distributed::forward(op, own.template inputs<In>(), own.out.view(), own.saved(), rows,
                                executor);
    const std::string what = name + ", " + std::to_string(layout.rows()) + " rows, bias " +
                             fovea::to_string(whole.bias.shape()) + ", mask " +
                             fovea::to_string(whole.mask.shape());
    expect_own_part(own.out, whole.out, rows, what + ", out");
    expect_own_part(own.lse, whole.lse, rows, what + ", lse");
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

TEST(DistributedBias, HasTheBitsOfOneProcess) {
  for (const Index rows : {1, 6, 190}) {
    for (const auto& [bias, mask] : all_shapes(rows)) {
      const auto whole = whole_problem<float>(2, 4, 2, rows, bias, mask);
      for_each_softmax_operator(
          rows, [&](const std::string& name, const auto& op) { check(name, op, whole); });
    }
  }
}

TEST(DistributedBias, HasTheBitsOfOneProcessInOtherTypes) {
  const Shape bias = {1, 2, 130, 130};
  const Shape mask = {1, 1, 130, 130};
  const auto doubles = whole_problem<double>(1, 2, 2, 130, bias, mask);
  const auto halves = whole_problem<Eigen::half>(1, 2, 1, 130, bias, mask);
  check("causal", FullAttention{{.causal = true}}, doubles);
  check("window", fovea::LocalAttention{{.left = 20, .right = 9}}, doubles);
  check("causal", FullAttention{{.causal = true}}, halves);
}

TEST(DistributedBias, HasTheBitsOfOneProcessInLongformer) {
  const Shape bias = {1, 2, 190, 190};
  const Shape mask = {2, 1, 190, 190};
  const auto whole = whole_problem<float>(2, 2, 1, 190, bias, mask);
  fovea::ThreadPool pool(2);
  check("Longformer", LongformerAttention{{.left = 9, .right = 5, .global = {0, 77}}}, whole, pool);
}

TEST(DistributedBias, HasTheBitsOfOneProcessInStages) {
  const Index rows = 3 * fovea::kKeySegment + 100;
  const auto whole = whole_problem<float>(1, 1, 1, rows, {1, 1, 1, rows}, {1, 1, rows, 1});
  check("causal", FullAttention{{.causal = true}}, whole);
}

TEST(DistributedBias, GoesWithLengthsSlopesAndSinks) {
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

TEST(DistributedBias, IsRefusedWhereItDoesNotFit) {
  const auto whole = whole_problem<float>(1, 2, 2, 70, {1, 1, 70, 70}, {1, 1, 70, 70});
  const Rows rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
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
  EXPECT_EQ(refused(in), begin + "width of bias is 69; expected 1 or 70, the rows of the sequence");
  in = own.inputs();
  const Index own_rows = rows.layout().count(last);
  const Tensor<bool> longer({1, 1, 71, 70});
  if (is_last) in.mask = longer.view();
  EXPECT_EQ(refused(in), begin + "rows of mask is 71; expected 1 or " + std::to_string(own_rows) +
                             ", the rows of q");
  for (const float x : own.out.values()) EXPECT_EQ(x, 77);
  if (last == 0) return;
  in = own.inputs();
  if (is_last) in.bias = {};
  const std::string text = refused(in);
  EXPECT_NE(text.find(", bias 1x1x70"), std::string::npos) << text;
}

}  // namespace fovea_test::distributed_bias
