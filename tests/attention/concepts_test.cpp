// SPDX-License-Identifier: MIT
// fovea_test(ALONE)
/// \file
/// The concepts Attention, Pattern and Plan, checked by archetypes; and all ways to call an
/// operator with Eigen's types.
#define EIGEN_USE_THREADS
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>
#include <vector>

#include "fovea/core/thread_pool.hpp"
#include "fovea/fovea.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"

namespace fovea_test::attention_concepts {

using fovea::attend;
using fovea::Attention;
using fovea::AttentionShape;
using fovea::DifferentiableAttention;
using fovea::FullAttention;
using fovea::LocalAttention;
using fovea::row_view;

static_assert(Attention<FullAttention, float> && Attention<FullAttention, double>);
static_assert(Attention<LocalAttention, float> && Attention<LocalAttention, double>);
static_assert(!Attention<int, float> && !Attention<fovea::Window, float>);

// Types that are not operators have no such types; a declaration may test this before its
// constraint.
template <class Op>
concept HasTypes = requires {
  typename fovea::InputsOf<Op, float>;
  typename fovea::SavedOf<Op, float>;
  typename fovea::GradsOf<Op, float>;
};
static_assert(HasTypes<FullAttention> && !HasTypes<fovea::Window>);

static_assert(DifferentiableAttention<FullAttention, float>);
static_assert(DifferentiableAttention<FullAttention, double>);
static_assert(DifferentiableAttention<LocalAttention, float>);
static_assert(DifferentiableAttention<LocalAttention, double>);

/// Has exactly the members that Attention requires.
struct ArchetypeAttention {
  template <class T>
  using Inputs = fovea::LinearInputs<T>;
  template <class T>
  using Saved = fovea::LinearSaved<T>;
  template <class T>
  using Grads = fovea::LinearGrads<T>;
  using Shape = AttentionShape;

  struct Name {
    operator const char*() const { return "Archetype"; }  // NOLINT: convertible is enough
  };
  static Name name() { return {}; }
  template <class T>
  void check(const Inputs<T>&, const View<T>&, const Saved<T>&) const {}
  template <class T>
  void forward(const Inputs<T>&, const View<T>&, const Saved<T>&, fovea::Serial&) const {}
  template <class T>
  Index workspace_bytes(const AttentionShape&, Index) const {
    return 0;
  }
  static Index attended_pairs(const AttentionShape&, Index) { return 0; }
};
static_assert(Attention<ArchetypeAttention, float> && Attention<ArchetypeAttention, double>);

struct WithoutForward : ArchetypeAttention {
  void forward() const = delete;
};
static_assert(!Attention<WithoutForward, float>);

struct OnlyMutable : ArchetypeAttention {
  template <class T>
  void forward(const Inputs<T>&, const View<T>&, const Saved<T>&, fovea::Serial&) {}
};
static_assert(!Attention<OnlyMutable, float>);

struct NotCopyable : ArchetypeAttention {
  NotCopyable() = default;
  NotCopyable(const NotCopyable&) = delete;
};
static_assert(!Attention<NotCopyable, float>);

/// Has exactly the members that DifferentiableAttention requires.
struct ArchetypeDifferentiable : ArchetypeAttention {
  template <class T>
  void check_backward(const Inputs<T>&, const View<const T>&, const Saved<T>&, const View<const T>&,
                      const Grads<T>&) const {}
  template <class T>
  void backward(const Inputs<T>&, const View<const T>&, const Saved<T>&, const View<const T>&,
                const Grads<T>&, fovea::Serial&) const {}
};
static_assert(DifferentiableAttention<ArchetypeDifferentiable, float>);
static_assert(!DifferentiableAttention<ArchetypeAttention, float>);

/// Has exactly the members that Plan requires.
struct ArchetypePlan {
  ArchetypePlan() = default;
  ArchetypePlan(const ArchetypePlan&) = delete;
  static short block_count() { return 0; }
  static fovea::QueryBlock block(Index, fovea::BlockStorage&) { return {}; }
  static int attended_pairs() { return 0; }
};
struct ArchetypePattern {
  ArchetypePattern() = default;
  ArchetypePattern(const ArchetypePattern&) = delete;
  static bool allows(Index, Index) { return false; }
  static ArchetypePlan plan(const fovea::SequenceShape&) { return {}; }
};
static_assert(fovea::Plan<ArchetypePlan> && fovea::Pattern<ArchetypePattern>);
static_assert(!fovea::Plan<ArchetypePattern> && !fovea::Pattern<ArchetypePlan>);
static_assert(!fovea::Pattern<int> && !fovea::Plan<FullAttention>);
struct AllowsInt : ArchetypePattern {
  static int allows(Index, Index) { return 0; }
};
static_assert(!fovea::Pattern<AllowsInt>);

// Inputs, saved tensors and gradients of one family are none of another.
static_assert(!std::convertible_to<fovea::SmartBirdInputs<float>, fovea::SoftmaxInputs<float>>);
static_assert(!std::convertible_to<fovea::SoftmaxInputs<float>, fovea::LinearInputs<float>>);
static_assert(!std::convertible_to<fovea::SmartBirdSaved<float>, fovea::SoftmaxSaved<float>>);
static_assert(!std::convertible_to<fovea::DeltaGrads<float>, fovea::LinearGrads<float>>);
// A shape with more sizes converts to AttentionShape, but not vice versa.
static_assert(std::convertible_to<fovea::IndexedShape, AttentionShape>);
static_assert(!std::convertible_to<AttentionShape, fovea::IndexedShape>);

/// The names that a visitor gets, including spans of numbers.
template <class X>
std::string names_of(const X& x) {
  std::string names;
  x.for_each_tensor([&](const char* name, const auto& /*tensor*/) {
    names += names.empty() ? "" : " ";
    names += name;
  });
  return names;
}

TEST(Visitors, VisitEveryTensorOfAFamily) {
  EXPECT_EQ(names_of(fovea::SoftmaxInputs<float>{}), "q k v bias mask sink alibi_slopes");
  EXPECT_EQ(names_of(fovea::LinearInputs<float>{}), "q k v");
  EXPECT_EQ(names_of(fovea::DeltaInputs<float>{}), "q k v beta");
  EXPECT_EQ(names_of(fovea::FmmInputs<float>{}), "q k v near_logits far_logits");
  EXPECT_EQ(names_of(fovea::FmmDeltaInputs<float>{}), "q k v beta near_logits far_logits");
  EXPECT_EQ(names_of(fovea::IndexedInputs<float>{}), "q k v indices");
  EXPECT_EQ(names_of(fovea::SmartBirdInputs<float>{}), "q k v sketch_q sketch_k draws");
  EXPECT_EQ(names_of(fovea::SketchInputs<float>{}), "sketch_q sketch_k draws");
  EXPECT_EQ(names_of(fovea::FsatInputs<float>{}), "q k v dominant random");
  EXPECT_EQ(names_of(fovea::SoftmaxSaved<float>{}), "lse");
  EXPECT_EQ(names_of(fovea::SmartBirdSaved<float>{}), "lse indices");
  EXPECT_EQ(names_of(fovea::FmmSaved<float>{}), "near_out near_lse");
  EXPECT_EQ(names_of(fovea::LinearSaved<float>{}), "");
  EXPECT_EQ(names_of(fovea::SoftmaxGrads<float>{}), "q k v bias sink");
  EXPECT_EQ(names_of(fovea::LinearGrads<float>{}), "q k v");
  EXPECT_EQ(names_of(fovea::DeltaGrads<float>{}), "q k v beta");
  EXPECT_EQ(names_of(fovea::FmmGrads<float>{}), "q k v near_logits far_logits");
  EXPECT_EQ(names_of(fovea::FmmDeltaGrads<float>{}), "q k v beta near_logits far_logits");
  EXPECT_EQ(names_of(fovea::FsatGrads<float>{}), "q k v dominant");
}

/// The operator itself is the oracle here: plain views, serial.
template <class T, class Op>
std::vector<T> plain(const Op& op, const fovea::SoftmaxInputs<T>& in) {
  std::vector<T> out(as_size(in.q.batch() * in.q.heads() * in.q.rows() * in.v.width()));
  const View<T> to(out.data(), {in.q.batch(), in.q.heads(), in.q.rows(), in.v.width()});
  op.forward(in, to);
  return out;
}

template <class T>
std::vector<T> elements(const View<const T>& x) {
  std::vector<T> all;
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { all.push_back(x(b, h, n, d)); });
  return all;
}

template <class X>
auto elements_of(const X& x) {
  return elements(View<const fovea::Scalar<X>>(x));
}

template <class X>
void fill(X& x, std::uint64_t seed) {
  using T = fovea::Scalar<X>;
  const View<T> view(x);
  const Fill values = gaussian(seed);
  for_each_index(view.shape(), [&](Index b, Index h, Index n, Index d) {
    view(b, h, n, d) = static_cast<T>(values(b, h, n, d));
  });
}

template <int Options>
struct Tensors {
  using Tensor = Eigen::Tensor<float, 4, Options>;
  Tensor q{2, 4, 70, 5}, k{2, 2, 80, 5}, v{2, 2, 80, 3}, out{2, 4, 70, 3};
  Eigen::Tensor<float, 3, Options> lse{2, 4, 70};
  Tensors() {
    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    out.setConstant(77);
    lse.setConstant(77);
  }
};

template <int Options>
void check_attend() {
  const FullAttention op{{.causal = true}};
  Tensors<Options> t;
  const std::vector<float> expected = plain<float>(op, {t.q, t.k, t.v});
  fovea::ThreadPool pool(2);
  const auto serial = attend(op, t.q, t.k, t.v);
  static_assert(
      std::is_same_v<std::remove_const_t<decltype(serial)>, Eigen::Tensor<float, 4, Options>>);
  EXPECT_TRUE(same_bits(expected, elements_of(serial)));
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, t.q, t.k, t.v, pool))));
  Eigen::ThreadPool eigen_pool(2);
  Eigen::ThreadPoolDevice device(&eigen_pool, 2);
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, t.q, t.k, t.v, device))));

  using Tensor = Eigen::Tensor<float, 4, Options>;
  const Eigen::TensorMap<Tensor> q(t.q.data(), t.q.dimensions());
  const Eigen::TensorMap<const Tensor> k(t.k.data(), t.k.dimensions());
  const auto mapped = attend(op, q, k, t.v);
  static_assert(std::is_same_v<std::remove_const_t<decltype(mapped)>, Tensor>);
  EXPECT_TRUE(same_bits(expected, elements_of(mapped)));
}

TEST(Attend, TensorsOfBothStorageOrders) {
  check_attend<Eigen::RowMajor>();
  check_attend<Eigen::ColMajor>();
}

TEST(Attend, StorageOrdersMayBeMixed) {
  Tensors<Eigen::RowMajor> rows;
  Tensors<Eigen::ColMajor> columns;
  const LocalAttention op{{.left = 9, .right = 2}};
  const std::vector<float> expected = plain<float>(op, {rows.q, rows.k, rows.v});
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, rows.q, columns.k, rows.v))));
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, columns.q, rows.k, columns.v))));
}

template <int Options>
void check_matrices() {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Options>;
  Matrix q(40, 6), k(50, 6), v(50, 4);
  fill(q, 1);
  fill(k, 2);
  fill(v, 3);
  const FullAttention op;
  const std::vector<double> expected = plain<double>(op, {q, k, v});
  const auto out = attend(op, q, k, v);
  static_assert(std::is_same_v<std::remove_const_t<decltype(out)>, Matrix>);
  EXPECT_EQ(out.rows(), 40);
  EXPECT_EQ(out.cols(), 4);
  EXPECT_TRUE(same_bits(expected, elements_of(out)));
  fovea::ThreadPool pool(3);
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, q, k, v, pool))));

  const Eigen::Map<const Matrix> mapped(k.data(), k.rows(), k.cols());
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, q, mapped, v))));
  const Eigen::Ref<const Matrix> ref(q);
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, ref, k, v))));

  // A block of a larger matrix, read and written.
  Matrix wide(60, 20);
  wide.setConstant(5);
  wide.block(7, 3, 50, 6) = k;
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, q, wide.block(7, 3, 50, 6), v))));
  wide.setConstant(5);
  op.forward({q, k, v}, wide.block(1, 2, 40, 4));
  EXPECT_EQ(Matrix(wide.block(1, 2, 40, 4)), Matrix(out));
  EXPECT_EQ((wide.array() == 5).count(), 60 * 20 - 40 * 4);
}

TEST(Attend, MatricesOfBothStorageOrders) {
  check_matrices<Eigen::RowMajor>();
  check_matrices<Eigen::ColMajor>();
}

TEST(Attend, FixedMatrices) {
  Eigen::Matrix<float, 6, 4> x;
  fill(x, 8);
  const auto out = attend(FullAttention{}, x, x, x);
  EXPECT_TRUE(same_bits(plain<float>(FullAttention{}, {x, x, x}), elements_of(out)));
}

/// Of views it makes a row-major tensor.
TEST(Attend, Views) {
  const Tensors<Eigen::ColMajor> t;
  const View<const float> q(t.q), k(t.k);
  const fovea::Tensor4<float> out =
      attend(LocalAttention{{.left = 4}}, q, k, View<const float>(t.v));
  EXPECT_TRUE(same_bits(plain<float>(LocalAttention{{.left = 4}}, {q, k, t.v}), elements_of(out)));
}

/// With a bias, by braces, by name, on a pool, and of another scalar.
TEST(Attend, AllInputs) {
  const Tensors<Eigen::RowMajor> t;
  const FullAttention op;
  Eigen::Tensor<float, 4, Eigen::RowMajor> bias(1, 4, 70, 80);
  fill(bias, 9);
  fovea::SoftmaxInputs<float> inputs{t.q, t.k, t.v};
  const std::vector<float> without = plain<float>(op, inputs);
  inputs.bias = bias;
  const std::vector<float> expected = plain<float>(op, inputs);
  EXPECT_FALSE(same_bits(expected, without));
  fovea::ThreadPool pool(2);
  const auto braces = attend(op, {.q = t.q, .k = t.k, .v = t.v, .bias = bias});
  EXPECT_TRUE(same_bits(expected, elements_of(braces)));
  EXPECT_TRUE(same_bits(expected, elements_of(attend(op, inputs, pool))));
  const Eigen::Tensor<double, 4, Eigen::RowMajor> q = t.q.cast<double>();
  const fovea::SoftmaxInputs<double> wide{.q = q, .k = q, .v = q};
  EXPECT_TRUE(same_bits(plain<double>(op, wide), elements_of(attend(op, wide))));
}

TEST(Attend, EmptyTensors) {
  Eigen::Tensor<float, 4, Eigen::RowMajor> q(1, 2, 3, 4), k(1, 2, 0, 4), v(1, 2, 0, 5);
  q.setZero();
  const auto out = attend(FullAttention{}, q, k, v);
  EXPECT_TRUE(same_bits(std::vector<float>(30), elements_of(out)));
  Eigen::Tensor<float, 4, Eigen::RowMajor> none(0, 2, 3, 4);
  EXPECT_EQ(attend(FullAttention{}, none, none, none).size(), 0);
}

template <int Options>
void check_forward() {
  const FullAttention op{{.causal = true}};
  Tensors<Options> t;
  const std::vector<float> expected = plain<float>(op, {t.q, t.k, t.v});
  std::vector<float> lse(560);
  op.forward({t.q, t.k, t.v}, t.out, {.lse = View<float>(lse.data(), {2, 4, 70, 1})});
  fovea::ThreadPool pool(2);
  const auto expect_written = [&](bool with_lse) {
    EXPECT_TRUE(same_bits(expected, elements_of(t.out)));
    const std::vector<float> rows = elements<float>(row_view(t.lse));
    EXPECT_TRUE(same_bits(with_lse ? lse : std::vector<float>(lse.size(), 77.0F), rows));
    t.out.setConstant(77);
    t.lse.setConstant(77);
  };
  op.forward({t.q, t.k, t.v}, t.out);
  expect_written(false);
  op.forward({t.q, t.k, t.v}, t.out, pool);
  expect_written(false);
  op.forward({t.q, t.k, t.v}, t.out, fovea::Serial{});
  expect_written(false);
  op.forward({t.q, t.k, t.v}, t.out, fovea::SoftmaxSaved<float>{row_view(t.lse)});
  expect_written(true);
  op.forward({t.q, t.k, t.v}, t.out, fovea::SoftmaxSaved<float>{row_view(t.lse)}, pool);
  expect_written(true);
  op.forward({t.q, t.k, t.v}, t.out, {.lse = row_view(t.lse)}, pool);
  expect_written(true);
  op.forward({t.q, t.k, t.v}, View<float>(t.out), {row_view(t.lse)}, fovea::Serial{});
  expect_written(true);
}

TEST(Forward, AllOverloads) {
  check_forward<Eigen::RowMajor>();
  check_forward<Eigen::ColMajor>();
}

template <int Options>
void check_backward() {
  using Tensor = Eigen::Tensor<float, 4, Options>;
  const FullAttention op{{.causal = true}};
  Tensors<Options> t;
  Tensor d_out(2, 4, 70, 3);
  fill(d_out, 5);
  op.forward({t.q, t.k, t.v}, t.out, {.lse = row_view(t.lse)});
  Tensor d_q(2, 4, 70, 5), d_k(2, 2, 80, 5), d_v(2, 2, 80, 3);
  const auto all = [&] {
    std::vector<float> values;
    for (Tensor* x : {&d_q, &d_k, &d_v}) {
      for (const float element : elements_of(*x)) values.push_back(element);
      x->setConstant(77);
    }
    return values;
  };
  const fovea::SoftmaxSaved<float> saved{row_view(t.lse)};
  op.backward({t.q, t.k, t.v}, t.out, saved, d_out, {.q = d_q, .k = d_k, .v = d_v});
  const std::vector<float> expected = all();
  EXPECT_GT(std::count_if(expected.begin(), expected.end(), [](float x) { return x != 0; }), 3000);
  fovea::ThreadPool pool(2);
  op.backward({t.q, t.k, t.v}, t.out, {.lse = row_view(t.lse)}, d_out, {d_q, d_k, d_v}, pool);
  EXPECT_TRUE(same_bits(expected, all()));
  Eigen::ThreadPool eigen_pool(2);
  Eigen::ThreadPoolDevice device(&eigen_pool, 2);
  op.backward({t.q, t.k, t.v}, t.out, saved, d_out, fovea::SoftmaxGrads<float>{d_q, d_k, d_v},
              device);
  EXPECT_TRUE(same_bits(expected, all()));
  op.backward({t.q, t.k, t.v}, View<const float>(t.out), saved, View<const float>(d_out),
              {d_q, d_k, d_v}, fovea::Serial{});
  EXPECT_TRUE(same_bits(expected, all()));
  op.backward({t.q, t.k, t.v}, t.out, saved, d_out, {.k = d_k});
  EXPECT_EQ(elements_of(d_q)[0], 77);
  EXPECT_EQ(elements_of(d_k)[0], expected[2 * 4 * 70 * 5]);
}

TEST(Backward, AllOverloads) {
  check_backward<Eigen::RowMajor>();
  check_backward<Eigen::ColMajor>();
}

}  // namespace fovea_test::attention_concepts
