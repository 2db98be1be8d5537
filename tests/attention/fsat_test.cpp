// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// FSAT attention beyond the conformance suite: against its oracle with every option, gradients of
/// the dominant indices too; bits for any threads, levels and strides; key lengths and packed
/// sequences as sequences alone; central differences; random edges; tensors of 16 bits; memory.
#include "fovea/attention/fsat.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/fsat_problem.hpp"
#include "fovea/attention/fat.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/eigen.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/compare.hpp"
#include "support/levels.hpp"
#include "support/memory.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_fsat {

using fovea::Confidence;

static_assert(fovea::Attention<FsatAttention, Eigen::bfloat16>);
static_assert(fovea::DifferentiableAttention<FsatAttention, double>);
static_assert(!fovea::DifferentiableAttention<FsatAttention, Eigen::half>);
static_assert(!fovea::IncrementalAttention<FsatAttention, float>);
static_assert(fovea::DifferentiableAttention<fovea::FatAttention, float>);
static_assert(!fovea::IncrementalAttention<fovea::FatAttention, float>);

template <class T>
void expect_conforms(const FsatOptions& options, const FsatProblem<T>& p) {
  const auto judge = fsat_judge(options, p);
  at_each_level([&] { judge(run_call(FsatAttention(options), p), "fsat"); });
}

/// Every choice of what an edge is, for sequences of up to `tokens`.
std::vector<FsatOptions> all_options(Index tokens) {
  std::vector<FsatOptions> all;
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::random, EdgeSource::both}) {
    for (const Confidence confidence : {Confidence::density, Confidence::relative}) {
      for (const bool truncates : {true, false}) {
        FsatOptions options{.max_length = tokens};
        options.edges = edges;
        options.confidence = confidence;
        options.truncate_gradient = truncates;
        options.seed = 0x123456789abcdef;
        if (confidence == Confidence::relative)
          options.variance = 0.7 * static_cast<double>(tokens);
        if (truncates) options.scale = -0.4;
        all.push_back(options);
      }
    }
  }
  return all;
}

template <class T>
class Fsat : public testing::Test {};
TYPED_TEST_SUITE(Fsat, Scalars);

TYPED_TEST(Fsat, ConformsWithEveryOption) {
  for (const Index tokens : {1, 2, 3, 17, 31, 64, 150}) {
    for (const FsatOptions& options : all_options(tokens)) {
      const FsatSizes s{.tokens = tokens, .slots_per_key = 1 + tokens % 5};
      SCOPED_TRACE(std::to_string(tokens) + " tokens");
      expect_conforms(options, FsatProblem<TypeParam>(s, static_cast<std::uint64_t>(tokens)));
    }
  }
}

TYPED_TEST(Fsat, ConformsAtAnyWidth) {
  for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
    FsatOptions options{.max_length = 300};
    options.edges = width % 2 == 0 ? EdgeSource::both : EdgeSource::predicted;
    options.variance = 2000;
    expect_conforms(options, FsatProblem<TypeParam>(
                                 {.tokens = 130, .width = width, .value_width = 81 - width}));
    expect_conforms(options,
                    FsatProblem<TypeParam>({.tokens = 130, .width = width, .value_width = width}));
  }
}

TYPED_TEST(Fsat, ConformsWithGroupedHeadsLengthsAndPacking) {
  for (const FsatOptions& options : all_options(97)) {
    FsatProblem<TypeParam> lengths(
        {.batch = 5, .heads = 4, .key_heads = 2, .tokens = 90, .slots_per_key = 3});
    lengths.key_lengths = {90, 0, 1, 53, 89};
    expect_conforms(options, lengths);
    FsatProblem<TypeParam> packed({.heads = 6, .key_heads = 1, .tokens = 90});
    packed.cu_seqlens = {0, 30, 30, 31, 90};
    expect_conforms(options, packed);
  }
}

/// All keys have one query; and all slots of a key.
TYPED_TEST(Fsat, ConformsWhereOneQueryHasEveryKey) {
  for (const FsatOptions& options : all_options(200)) {
    const auto one = [](Index, Index, Index j, Index m) {
      return 77 + 0.25 * static_cast<double>((j + m) % 4);
    };
    expect_conforms(options, FsatProblem<TypeParam>({.tokens = 200}, Fill(one)));
  }
}

/// Dominant indices at integers, just below them, at 0, at Lmax and above it.
TYPED_TEST(Fsat, ConformsAtTheEndsOfAnIndex) {
  using T = TypeParam;
  for (const Index most : {20, 25}) {  // the last one is a token, or none
    for (FsatOptions options : all_options(most)) {
      options.variance = 50;
      const auto special = [=](Index, Index, Index j, Index m) -> double {
        const auto n = static_cast<double>(most);
        const std::vector<double> all = {0,       0.5,
                                         1,       std::nextafter(T{7}, T{0}),
                                         7,       n - 1,
                                         n - 0.5, n,
                                         n + 3.5, std::nextafter(static_cast<T>(n), T{0})};
        return all[as_size((j * 3 + m) % 10)];
      };
      expect_conforms(options, FsatProblem<T>({.tokens = 20, .slots_per_key = 3}, Fill(special)));
    }
  }
}

/// No row of the output, and none of its gradients, depends on what an index of 1e30 means.
TYPED_TEST(Fsat, AcceptsAnyFiniteIndex) {
  using T = TypeParam;
  const FsatAttention op({.max_length = 20});
  for (const double huge :
       {1e9, 9.3e18, 1e30, static_cast<double>(std::numeric_limits<T>::max())}) {
    const auto some = [=](Index, Index, Index j, Index m) { return m == 1 ? huge : double(j); };
    const CallResult<T> got =
        run_call(op, FsatProblem<T>({.tokens = 20, .slots_per_key = 2}, Fill(some)));
    for (const std::vector<T>* x :
         {&got["out"], &got["d_q"], &got["d_k"], &got["d_v"], &got["d_dominant"]}) {
      for (const T value : *x) EXPECT_TRUE(std::isfinite(value)) << huge;
    }
  }
}

TYPED_TEST(Fsat, BitsDoNotDependOnThreadsLevelsAndStrides) {
  using T = TypeParam;
  for (const FsatOptions& options : all_options(700)) {
    const auto make = [](const Layout& layout) {
      FsatProblem<T> p({.batch = 2, .heads = 4, .key_heads = 2, .tokens = 700, .width = 16}, 1,
                       layout);
      p.key_lengths = {700, 411};
      return p;
    };
    expect_same_bits_everywhere(
        make, [&](const FsatProblem<T>& p, AnyExecutor* executor, const Layout& layout) {
          return run_call(FsatAttention(options), p, executor, layout);
        });
  }
}

/// The first tokens of one sequence of a problem as a problem.
template <class T>
FsatProblem<T> part_of(const FsatProblem<T>& whole, Index batch, Index first, Index count) {
  const auto shape = [&](const Tensor<T>& x) {
    return Shape{1, x.shape()[1], count, x.shape()[3]};
  };
  FsatProblem<T> part({.tokens = 0});
  const auto copy = [&](Tensor<T>& to, const Tensor<T>& from) {
    to = Tensor<T>(shape(from));
    to.fill([&](Index, Index h, Index n, Index d) {
      return static_cast<double>(from(batch, h, first + n, d));
    });
  };
  copy(part.q, whole.q);
  copy(part.k, whole.k);
  copy(part.v, whole.v);
  copy(part.dominant, whole.dominant);
  copy(part.d_out, whole.d_out);
  return part;
}

/// Whether rows [first, first + part's) of a batch entry of `whole` are `part`, and so for all
/// heads.
template <class T>
void expect_part(const std::vector<T>& whole, const Shape& shape, const std::vector<T>& part,
                 Index batch, Index first, Index count) {
  for (Index h = 0; h < shape[1]; ++h) {
    for (Index n = 0; n < count * shape[3]; ++n) {
      const Index at = ((batch * shape[1] + h) * shape[2] + first) * shape[3] + n;
      ASSERT_EQ(
          std::memcmp(&whole[as_size(at)], &part[as_size(h * count * shape[3] + n)], sizeof(T)), 0)
          << "head " << h << ", element " << n;
    }
  }
}

template <class T>
void expect_part(const FsatProblem<T>& p, const CallResult<T>& whole, const CallResult<T>& part,
                 Index batch, Index first, Index count) {
  const Shape rows = {p.q.shape()[0], p.q.shape()[1], p.q.shape()[2], 1};
  expect_part(whole["out"], p.d_out.shape(), part["out"], batch, first, count);
  expect_part(whole["lse"], rows, part["lse"], batch, first, count);
  expect_part(whole["d_q"], p.q.shape(), part["d_q"], batch, first, count);
  expect_part(whole["d_k"], p.k.shape(), part["d_k"], batch, first, count);
  expect_part(whole["d_v"], p.v.shape(), part["d_v"], batch, first, count);
  expect_part(whole["d_dominant"], p.dominant.shape(), part["d_dominant"], batch, first, count);
}

/// Rows beyond the length, even with NaN in the dominant indices, have no effect; their results are
/// 0.
TYPED_TEST(Fsat, AKeyLengthEqualsAShorterSequence) {
  using T = TypeParam;
  for (FsatOptions options : all_options(120)) {
    const FsatAttention op(options);
    for (const Index length : {0, 1, 2, 64, 77, 119, 120}) {
      FsatProblem<T> p({.heads = 4, .tokens = 120});
      for (const Tensor<T>* x : {&p.q, &p.k, &p.v, &p.dominant, &p.d_out}) {
        for_each_index(x->shape(), [&](Index b, Index h, Index n, Index d) {
          if (n >= length) (*x)(b, h, n, d) = std::numeric_limits<T>::quiet_NaN();
        });
      }
      p.key_lengths = {length};
      const CallResult<T> whole = run_call(op, p);
      expect_part(p, whole, run_call(op, part_of(p, 0, 0, length)), 0, 0, length);
      for (const std::vector<T>* x :
           {&whole["out"], &whole["d_q"], &whole["d_k"], &whole["d_v"], &whole["d_dominant"]}) {
        const Index row = static_cast<Index>(x->size()) /
                          (120 * (x == &whole["d_k"] || x == &whole["d_v"] ? 2 : 4));
        for (Index i = 0; i < static_cast<Index>(x->size()); ++i) {
          if (i / row % 120 < length) continue;
          ASSERT_EQ((*x)[as_size(i)], 0) << i;
          ASSERT_FALSE(std::signbit((*x)[as_size(i)])) << i;
        }
      }
    }
  }
}

/// Packed sequences are sequences alone; with random edges the first one, whose number is 0.
TYPED_TEST(Fsat, PackedSequencesEqualSequencesAlone) {
  using T = TypeParam;
  for (const FsatOptions& options : all_options(60)) {
    const FsatAttention op(options);
    FsatProblem<T> p({.heads = 4, .key_heads = 2, .tokens = 130});
    p.cu_seqlens = {0, 60, 61, 61, 130 - 19, 130};
    const CallResult<T> whole = run_call(op, p);
    for (std::size_t s = 0; s + 1 < p.cu_seqlens.size(); ++s) {
      if (options.edges != EdgeSource::predicted && s > 0) continue;
      const Index first = p.cu_seqlens[s];
      const Index count = p.cu_seqlens[s + 1] - first;
      expect_part(p, whole, run_call(op, part_of(p, 0, first, count)), 0, first, count);
    }
  }
}

/// Every gradient is the same whichever of them are requested.
TYPED_TEST(Fsat, GradientsDoNotDependOnWhichAreRequested) {
  using T = TypeParam;
  const FsatAttention op({.max_length = 200, .edges = EdgeSource::both});
  const FsatProblem<T> p({.heads = 4, .key_heads = 2, .tokens = 200});
  const CallResult<T> all = run_call(op, p);
  const AllInputs<T> in = p.inputs();
  const Tensor<T> out(p.d_out.shape()), lse({1, 4, 200, 1});
  op.forward(in, out.view(), AllSaved<T>{lse.view()});
  for (int set = 0; set < 16; ++set) {
    const Tensor<T> d_q(in.q.shape()), d_k(in.k.shape()), d_v(in.v.shape());
    const Tensor<T> d_dominant(in.dominant.shape());
    AllGrads<T> grads;
    if ((set & 1) != 0) grads.q = d_q.view();
    if ((set & 2) != 0) grads.k = d_k.view();
    if ((set & 4) != 0) grads.v = d_v.view();
    if ((set & 8) != 0) grads.dominant = d_dominant.view();
    op.backward(in, out.view(), AllSaved<T>{lse.view()}, p.d_out.view(), grads);
    EXPECT_TRUE((set & 1) == 0 || same_bits(all["d_q"], d_q.values())) << set;
    EXPECT_TRUE((set & 2) == 0 || same_bits(all["d_k"], d_k.values())) << set;
    EXPECT_TRUE((set & 4) == 0 || same_bits(all["d_v"], d_v.values())) << set;
    EXPECT_TRUE((set & 8) == 0 || same_bits(all["d_dominant"], d_dominant.values())) << set;
  }
}

/// Heads with more edges than the backward pass processes at once.
TEST(FsatBackward, GroupsOfHeadsDoNotChangeBits) {
  const FsatAttention op({.max_length = 70'000});
  const FsatSizes s{.heads = 6,
                    .key_heads = 3,
                    .tokens = 70'000,
                    .slots_per_key = 8,
                    .width = 1,
                    .value_width = 1};
  const FsatProblem<float> p(s);
  const CallResult<float> all = run_call(op, p);
  FsatProblem<float> one({.tokens = 0});
  for (const Index g : {0, 2}) {
    const auto cut_heads = [&](Tensor<float>& to, const Tensor<float>& from, Index first,
                               Index count) {
      to = Tensor<float>({1, count, s.tokens, from.shape()[3]});
      to.fill([&](Index, Index h, Index n, Index d) {
        return static_cast<double>(from(0, first + h, n, d));
      });
    };
    cut_heads(one.q, p.q, 2 * g, 2);
    cut_heads(one.k, p.k, g, 1);
    cut_heads(one.v, p.v, g, 1);
    cut_heads(one.dominant, p.dominant, 2 * g, 2);
    cut_heads(one.d_out, p.d_out, 2 * g, 2);
    const CallResult<float> got = run_call(op, one);
    const auto same = [&](const std::vector<float>& whole, const std::vector<float>& part,
                          Index parts) {
      const auto from = whole.begin() + static_cast<std::ptrdiff_t>(part.size()) * parts;
      return std::equal(part.begin(), part.end(), from);
    };
    EXPECT_TRUE(same(all["d_q"], got["d_q"], g));
    EXPECT_TRUE(same(all["d_k"], got["d_k"], g));
    EXPECT_TRUE(same(all["d_v"], got["d_v"], g));
    EXPECT_TRUE(same(all["d_dominant"], got["d_dominant"], g));
  }
}

/// Central differences, while no index crosses an integer; not truncated, since truncation is no
/// derivative.
TEST(FsatDifferences, MatchEveryGradient) {
  for (FsatOptions options : all_options(30)) {
    options.truncate_gradient = false;
    for (const Index slots_per_key : {1, 3}) {
      const auto inside = [](Index b, Index h, Index j, Index m) {
        const std::uint64_t bits = hash(5, b, h, j, m);
        return static_cast<double>(bits % 13) + 0.1 + 0.8 * uniform(bits);
      };
      const FsatProblem<double> p({.heads = 2,
                                   .key_heads = 1,
                                   .tokens = 13,
                                   .slots_per_key = slots_per_key,
                                   .width = 3,
                                   .value_width = 2},
                                  Fill(inside));
      expect_differences(FsatAttention(options), p, 1e-8);
    }
  }
}

/// A truncated gradient has no term of the other sign: one slot, one edge.
TEST(FsatTruncation, KeepsTheNegativeGradientsOfConfidences) {
  FsatOptions options{.max_length = 50};
  const auto inside = [](Index b, Index h, Index j, Index m) {
    return 49 * uniform(hash(6, b, h, j, m));
  };
  const FsatProblem<double> p({.tokens = 50, .slots_per_key = 1}, Fill(inside));
  const CallResult<double> truncated = run_call(FsatAttention(options), p);
  options.truncate_gradient = false;
  const CallResult<double> whole = run_call(FsatAttention(options), p);
  int kept = 0;
  int dropped = 0;
  for (std::size_t i = 0; i < whole["d_dominant"].size(); ++i) {
    const double ibar = p.dominant.values()[i];
    // I - Ibar is not positive, so the gradient of the confidence has the other sign.
    const bool flows = whole["d_dominant"][i] > 0;
    EXPECT_EQ(truncated["d_dominant"][i], flows ? whole["d_dominant"][i] : 0) << ibar;
    (flows ? kept : dropped) += 1;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(dropped, 20);
  EXPECT_TRUE(same_bits(truncated["d_q"], whole["d_q"]));
}

/// The float result, rounded once.
TEST(FsatStorage, RoundsTheFloatResult) {
  const FsatProblem<float> p({.tokens = 90, .width = 64, .value_width = 20});
  const auto rounded = [](const Tensor<float>& x) {
    Tensor<Eigen::bfloat16> made(x.shape());
    for_each_index(x.shape(), [&](Index b, Index h, Index n, Index d) {
      made(b, h, n, d) = static_cast<Eigen::bfloat16>(x(b, h, n, d));
      x(b, h, n, d) = static_cast<float>(made(b, h, n, d));
    });
    return made;
  };
  const Tensor<Eigen::bfloat16> q = rounded(p.q), k = rounded(p.k), v = rounded(p.v);
  const FsatAttention op({.max_length = 90});
  at_each_level([&] {
    const Tensor<Eigen::bfloat16> out(p.d_out.shape());
    const Tensor<float> float_out(out.shape());
    AllInputs<Eigen::bfloat16> in{q.view(), k.view(), v.view()};
    in.dominant = p.dominant.view();
    op.forward(in, out.view());
    op.forward(p.inputs(), float_out.view());
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      EXPECT_EQ(static_cast<float>(out(b, h, n, d)),
                static_cast<float>(Eigen::bfloat16(float_out(b, h, n, d))));
    });
  });
}

/// Both passes allocate workspace_bytes and a few small objects, nothing of L x L.
TYPED_TEST(Fsat, AllocatesExactlyItsWorkspace) {
  using T = TypeParam;
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::both}) {
    for (const Index n : {300, 9000}) {
      FsatOptions options{.max_length = n};
      options.edges = edges;
      const FsatAttention op(options);
      const FsatProblem<T> p({.batch = 2, .heads = 2, .key_heads = 1, .tokens = n});
      const fovea::FsatInputs<T> in = p.inputs();
      const fovea::FsatShape s = fovea::shape_of(in);
      const Index forward_bytes = op.workspace_bytes<T>(s, 1);
      const Index backward_bytes = op.backward_workspace_bytes<T>(s, 1);
      const Tensor<T> out(p.d_out.shape()), lse({2, 2, n, 1});
      const Tensor<T> d_q(in.q.shape()), d_k(in.k.shape()), d_v(in.v.shape());
      const Tensor<T> d_dominant(in.dominant.shape());
      AllGrads<T> grads{d_q.view(), d_k.view(), d_v.view()};
      grads.dominant = d_dominant.view();
      std::ptrdiff_t before = heap().reset();
      op.forward(in, out.view(), AllSaved<T>{lse.view()});
      EXPECT_LE(heap().peak - before, forward_bytes + 1024);
      EXPECT_GE(heap().peak - before, forward_bytes - 1024);
      EXPECT_LE(heap().allocations, 12);
      before = heap().reset();
      op.backward(in, out.view(), AllSaved<T>{lse.view()}, out.view(), grads);
      EXPECT_LE(heap().peak - before, backward_bytes + 1024);
      EXPECT_GE(heap().peak - before, backward_bytes - 1024);
      EXPECT_LE(heap().allocations, 20);
      fovea::Arena arena((std::max)(forward_bytes, backward_bytes));
      before = heap().reset();
      op.forward(in, out.view(), AllSaved<T>{lse.view()}, arena.on());
      op.backward(in, out.view(), AllSaved<T>{lse.view()}, out.view(), grads, arena.on());
      EXPECT_LE(heap().peak - before, 1024);
    }
  }
}

/// One head whose graph threads share: the same bits, in an arena of the stated size.
TYPED_TEST(Fsat, OneHeadIsSharedByThreads) {
  using T = TypeParam;
  FsatOptions options{.max_length = 1100};
  options.edges = EdgeSource::both;
  const FsatAttention op(options);
  const FsatProblem<T> p({.heads = 1, .key_heads = 1, .tokens = 1100, .slots_per_key = 30});
  const CallResult<T> serial = run_call(op, p);
  const fovea::FsatShape s = fovea::shape_of(fovea::FsatInputs<T>(p.inputs()));
  Backwards backwards;
  Shuffled shuffled;
  AnyExecutor executor = AnyExecutor::of(shuffled);
  EXPECT_TRUE(same_bits(serial, run_call(op, p, &executor)));
  const Index workers = Backwards::concurrency();
  const Index bytes =
      (std::max)(op.workspace_bytes<T>(s, workers), op.backward_workspace_bytes<T>(s, workers));
  fovea::Arena arena(bytes);
  executor = AnyExecutor::of(backwards, &arena);
  EXPECT_TRUE(same_bits(serial, run_call(op, p, &executor)));
  fovea::Arena small(bytes - 8192);
  executor = AnyExecutor::of(backwards, &small);
  EXPECT_THROW(run_call(op, p, &executor), std::invalid_argument);
}

TYPED_TEST(Fsat, EmptyTensors) {
  using T = TypeParam;
  const FsatAttention op({.max_length = 5});
  for (const FsatSizes& s :
       {FsatSizes{.batch = 0}, FsatSizes{.heads = 0, .key_heads = 0}, FsatSizes{.tokens = 0}}) {
    FsatSizes short_one = s;
    short_one.tokens = std::min<Index>(s.tokens, 5);
    EXPECT_TRUE(run_call(op, FsatProblem<T>(short_one))["out"].empty());
  }
}

}  // namespace fovea_test::attention_fsat
