// SPDX-License-Identifier: MIT
// fovea_test(RANKS)
/// \file
/// The forms of the Synthesizer over ranks have the bits of one process.
#include <gtest/gtest.h>

#include "attention/synthesizer_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/distributed/synthesizer_backward.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"
#include "support/compare.hpp"
#include "support/ranks.hpp"
#include "support/refusal.hpp"
#include "support/scalars.hpp"

namespace fovea_test::distributed_synthesizer {

using fovea::kReductionBlock;
using fovea::SoftmaxSaved;
using fovea::View;

const Layout kRowsFirst = {.order = {0, 2, 1, 3}, .offset = 3, .gap = 5};

/// Whether a tensor of that name has the rows of the sequence.
bool has_rows(const std::string& name) { return name[0] != 'w' && name[0] != 'b'; }

/// The tensors of this rank: its rows, and all of weights that have none.
template <class T>
NamedTensors<T> own_tensors(const NamedTensors<T>& whole, const Sharding& rows) {
  return whole.made([&](const std::string& name, const Tensor<T>& x) {
    return has_rows(name) ? own_part(x, rows, kRowsFirst) : x.in({});
  });
}

/// A rank's tensors of a call.
template <class Form>
struct OwnPart {
  using T = typename Form::Scalar;

  OwnPart(const SynthesizerProblem<Form>& whole, const Tensor<T>& whole_out,
          const Tensor<T>& whole_lse, const Sharding& rows)
      : tensors(own_tensors(whole.tensors, rows)),
        grads(tensors.blank(kRowsFirst)),
        out(own_part(whole_out, rows)),
        lse(own_part(whole_lse, rows)),
        d_out(own_part(whole.d_out, rows)),
        lengths(whole.key_lengths) {}

  auto inputs() const {
    auto in = Form::inputs(tensors);
    in.key_lengths = lengths;
    return in;
  }
  SoftmaxSaved<T> saved() const { return {lse.view()}; }

  NamedTensors<T> tensors, grads;
  Tensor<T> out, lse, d_out;
  std::vector<Index> lengths;
};

template <class Form, class E = fovea::Serial>
void check_forward(const SynthesizerProblem<Form>& whole, E&& executor = {}) {
  using T = typename Form::Scalar;
  const Shape shape = whole.shape_of_out();
  const Tensor<T> out(shape);
  const Tensor<T> lse({shape[0], shape[1], shape[2], 1});
  whole.op().forward(whole.inputs(), out.view(), {lse.view()});
  for (const RowLayout& layout : layouts_of(shape[2], all_ranks().size())) {
    const Sharding rows(all_ranks(), layout);
    const OwnPart<Form> own(whole, out, lse, rows);
    own.out.fill(constant(77));
    own.lse.fill(constant(77));
    fovea::distributed::forward(whole.op(), own.inputs(), own.out.view(), own.saved(), rows,
                                executor);
    expect_own_part(own.out, out, rows, layout.text() + ", out");
    expect_own_part(own.lse, lse, rows, layout.text() + ", lse");
  }
}

/// Layouts for gradients of weights, which are sums over tokens.
template <class Form>
std::vector<RowLayout> layouts_for_gradients(Index rows) {
  const int ranks = all_ranks().size();
  if (!std::is_same_v<typename Form::Op, fovea::DenseSynthesizerAttention>) {
    return layouts_of(rows, ranks);
  }
  return {RowLayout::contiguous(rows, ranks, kReductionBlock),
          RowLayout::zigzag(rows, ranks, kReductionBlock),
          RowLayout::block_cyclic(rows, ranks, kReductionBlock)};
}

template <class Form, class E = fovea::Serial>
void check_backward(const SynthesizerProblem<Form>& whole, E&& executor = {}) {
  using T = typename Form::Scalar;
  const Shape shape = whole.shape_of_out();
  const Tensor<T> out(shape);
  const Tensor<T> lse({shape[0], shape[1], shape[2], 1});
  const SoftmaxSaved<T> saved{lse.view()};
  const NamedTensors<T> grads = whole.tensors.blank({});
  whole.op().forward(whole.inputs(), out.view(), saved);
  whole.op().backward(whole.inputs(), View<const T>(out.view()), saved,
                      View<const T>(whole.d_out.view()), Form::grads(grads));
  for (const RowLayout& layout : layouts_for_gradients<Form>(shape[2])) {
    const Sharding rows(all_ranks(), layout);
    const OwnPart<Form> own(whole, out, lse, rows);
    fovea::distributed::backward(whole.op(), own.inputs(), View<const T>(own.out.view()),
                                 own.saved(), View<const T>(own.d_out.view()),
                                 Form::grads(own.grads), rows, executor);
    for (std::size_t n = 0; n < grads.all().size(); ++n) {
      const auto& [name, d] = grads.all()[n];
      const Tensor<T>& got = own.grads.all()[n].second;
      const std::string what = layout.text() + ", d_" + name;
      if (has_rows(name)) {
        expect_own_part(got, d, rows, what);
      } else {
        EXPECT_TRUE(same_bits(got.values(), d.values())) << what;
      }
    }
    EXPECT_EQ(own.grads.changed_gaps(), 0);
  }
}

template <class Form>
class DistributedSynthesizer : public testing::Test {};
using Forms = OfEachScalar<RandomForm, FactorisedForm, DenseForm>;
TYPED_TEST_SUITE(DistributedSynthesizer, Forms);

/// Problems that differ in sizes, in what sequences and heads have in common, and in lengths.
template <class Form, class F>
void for_each_problem(const F& f) {
  using Problem = SynthesizerProblem<Form>;
  for (const bool is_causal : {false, true}) {
    for (const Index rows : {1, 6, 200}) {
      f(Problem({.batch = 2, .heads = 4, .key_heads = 2, .rows = rows, .columns = 3}, is_causal));
    }
    f(Problem({.batch = 3,
               .heads = 2,
               .key_heads = 2,
               .rows = 150,
               .is_shared = false,
               .has_biases = false,
               .has_token_heads = false},
              is_causal, {150, 0, 77}));
  }
}

TYPED_TEST(DistributedSynthesizer, EqualsOneProcess) {
  for_each_problem<TypeParam>([](const auto& problem) { check_forward(problem); });
}

TYPED_TEST(DistributedSynthesizer, EqualsOneProcessOnThreads) {
  fovea::ThreadPool pool(2);
  check_forward(
      SynthesizerProblem<TypeParam>({.heads = 2, .key_heads = 1, .rows = 333, .width = 9}), pool);
}

TYPED_TEST(DistributedSynthesizer, GradientsEqualOneProcess) {
  for_each_problem<TypeParam>([](const auto& problem) { check_backward(problem); });
}

TYPED_TEST(DistributedSynthesizer, GradientsEqualOneProcessOnThreads) {
  fovea::ThreadPool pool(2);
  check_backward(
      SynthesizerProblem<TypeParam>({.heads = 2, .key_heads = 1, .rows = 333, .width = 9}), pool);
}

/// What is received from other ranks: values, and the form's keys.
TEST(DistributedSynthesizerTraffic, IsOfValuesAndKeys) {
  if (all_ranks().size() != 2) GTEST_SKIP() << "counted for two ranks";
  const Sharding rows(all_ranks(), RowLayout::contiguous(200, 2));
  const SynthesizerSizes sizes = {.heads = 2, .rows = 200};
  const auto sent = [&]<class Form>(const SynthesizerProblem<Form>& whole) {
    const Tensor<float> out(whole.shape_of_out());
    const Tensor<float> lse({1, 2, 200, 1});
    const OwnPart<Form> own(whole, out, lse, rows);
    return fovea::distributed::forward(whole.op(), own.inputs(), own.out.view(), rows).bytes_sent;
  };
  EXPECT_EQ(sent(SynthesizerProblem<RandomForm<float>>(sizes)), 100 * 5 * 4);
  EXPECT_EQ(sent(SynthesizerProblem<FactorisedForm<float>>(sizes)), 100 * (5 + 3) * 4);
  EXPECT_EQ(sent(SynthesizerProblem<DenseForm<float>>(sizes)), 100 * (5 + 4 + 1) * 4);
  const bool is_first = all_ranks().rank() == 0;
  EXPECT_EQ(sent(SynthesizerProblem<RandomForm<float>>(sizes, true)), is_first ? 100 * 5 * 4 : 0);
}

TEST(DistributedSynthesizerErrors, ReportInvalidArgumentsOfOneRank) {
  const Sharding rows(all_ranks(), RowLayout::contiguous(70, all_ranks().size()));
  const SynthesizerProblem<RandomForm<float>> random({.rows = 70});
  const SynthesizerProblem<DenseForm<float>> dense({.rows = 70});
  const Tensor<float> out({1, 1, 70, 5});
  const Tensor<float> lse({1, 1, 70, 1});
  const int last = all_ranks().size() - 1;
  const bool is_last = all_ranks().rank() == last;
  const std::string begin = "rank " + std::to_string(last) + ": ";
  const auto refused = [&](const auto& op, const auto& in, const Tensor<float>& to) {
    return refusal([&] { fovea::distributed::forward(op, in, to.view(), rows); });
  };
  const OwnPart<RandomForm<float>> own(random, out, lse, rows);
  auto in = own.inputs();
  const Tensor<float> narrow({1, 1, rows.own_count(), 69});
  if (is_last) in.r = narrow.view();
  EXPECT_EQ(
      refused(random.op(), in, own.out),
      begin + "RandomSynthesizerAttention: r has width 69; expected 70, the rows of the sequence");
  in = own.inputs();
  const Index own_rows = rows.layout().count(last);
  const Tensor<float> longer({1, 1, own_rows + 1, 5});
  if (is_last) in.v = longer.view();
  EXPECT_EQ(refused(random.op(), in, own.out), begin + "RandomSynthesizerAttention: v has " +
                                                   std::to_string(own_rows + 1) +
                                                   " rows; expected " + std::to_string(own_rows) +
                                                   ", the rows of rank " + std::to_string(last));
  in = own.inputs();
  const std::vector<Index> lengths = {71};
  if (is_last) in.key_lengths = lengths;
  EXPECT_EQ(refused(random.op(), in, own.out),
            begin +
                "RandomSynthesizerAttention: key_lengths[0] is 71; expected 0 to 70, the rows of "
                "the sequence");
  const OwnPart<DenseForm<float>> of_dense(dense, out, lse, rows);
  auto dense_in = of_dense.inputs();
  const Tensor<float> few({1, 1, 4, 69});
  dense_in.b2 = {};
  if (is_last) dense_in.w2 = few.view();
  EXPECT_EQ(refused(dense.op(), dense_in, of_dense.out),
            begin +
                "DenseSynthesizerAttention: w2 has width 69; expected at least 70, the rows of the "
                "sequence");
}

/// Gradients of weights are sums over tokens, which ranks want together and cut at chains.
TEST(DistributedSynthesizerErrors, OfGradientsOfWeights) {
  if (all_ranks().size() == 1) GTEST_SKIP() << "nobody to differ from";
  using Form = DenseForm<float>;
  const SynthesizerProblem<Form> dense({.rows = 200});
  const Tensor<float> out({1, 1, 200, 5});
  const Tensor<float> lse({1, 1, 200, 1});
  const auto refused = [&](const RowLayout& layout, const auto& wanted) {
    const Sharding rows(all_ranks(), layout);
    const OwnPart<Form> own(dense, out, lse, rows);
    auto grads = Form::grads(own.grads);
    wanted(grads);
    return refusal([&] {
      fovea::distributed::backward(dense.op(), own.inputs(), View<const float>(own.out.view()),
                                   own.saved(), View<const float>(own.d_out.view()), grads, rows);
    });
  };
  std::vector<std::vector<Range>> odd(as_size(all_ranks().size()));
  odd[0] = {{0, 100}};
  odd[1] = {{100, 200}};
  EXPECT_EQ(refused(RowLayout(odd), [](auto&) {}),
            "rank 1: DenseSynthesizerAttention: the first row of a range is 100; expected a "
            "multiple of 64, the reduction block of gradients of w1 and b1");
  EXPECT_EQ(refused(RowLayout(odd),
                    [](auto& grads) {
                      grads.w1 = {};
                      grads.b1 = {};
                    }),
            "accepted");
  const std::string text =
      refused(RowLayout::contiguous(200, all_ranks().size(), kReductionBlock), [](auto& grads) {
        if (all_ranks().rank() == 1) grads.w2 = {};
      });
  EXPECT_NE(text.find(", gradients of w2"), std::string::npos) << text;
}

}  // namespace fovea_test::distributed_synthesizer
