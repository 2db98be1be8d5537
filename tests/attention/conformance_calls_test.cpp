// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED HEAP)
/// \file
/// The conformance suite for operators with inputs of their own, whose calls are data (CallCases):
/// results against the oracle and central differences; the same bits for any threads, levels,
/// layouts and requested gradients; sequences and heads alone; what is beyond key lengths; memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "attention/fsat_problem.hpp"
#include "attention/longformer_problem.hpp"
#include "attention/mixed_problems.hpp"
#include "attention/poisons.hpp"
#include "attention/reformer_problem.hpp"
#include "attention/sinkhorn_problem.hpp"
#include "attention/synthesizer_problem.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/levels.hpp"
#include "support/same_everywhere.hpp"
#include "support/scalars.hpp"

namespace fovea_test::attention_conformance_calls {

/// Of a kind of CallProblem.
template <class P>
class Calls : public testing::Test {
 protected:
  using OfOp = CallCases<typename P::Op>;

  /// The first case and the last one, for what takes time.
  template <class Case>
  static std::vector<Case> ends(const std::vector<Case>& cases) {
    return {cases.front(), cases.back()};
  }
};

struct Names {
  template <class P>
  static std::string GetName(int /*place*/) {
    return P::Op::name() + std::string("_") + scalar_name<typename P::Scalar>();
  }
};

using All =
    OfEachScalar<ReformerProblem, SortProblem, NystroemProblem, LinformerProblem, LongformerProblem,
                 RandomProblem, FactorisedProblem, DenseProblem, FsatProblem>;
TYPED_TEST_SUITE(Calls, All, Names);

/// With what the forward pass saved, and without it.
TYPED_TEST(Calls, Conform) {
  std::size_t n = 0;
  for (const auto& one : TestFixture::OfOp::conforming()) {
    SCOPED_TRACE("case " + std::to_string(n++));
    const TypeParam p = one.template problem<typename TypeParam::Scalar>();
    const auto judge = judge_of_call(p);
    at_each_level([&] {
      const auto got = p.run();
      judge(got, TypeParam::Form::name);
      EXPECT_TRUE(same_bits(got, p.run(nullptr, {}, false)));
    });
  }
}

TYPED_TEST(Calls, GradientsMatchCentralDifferences) {
  if (!std::is_same_v<typename TypeParam::Scalar, float>)
    GTEST_SKIP() << "they are those of double";
  for (const auto& one : TestFixture::OfOp::small()) {
    expect_differences(one.op, one.template problem<double>(), TestFixture::OfOp::tolerance);
  }
}

TYPED_TEST(Calls, BitsDoNotDependOnThreadsLevelsAndLayouts) {
  using T = typename TypeParam::Scalar;
  for (const auto& one : TestFixture::OfOp::large()) {
    expect_same_bits_everywhere(
        [&](const Layout& layout) { return one.template problem<T>(layout); },
        [](const auto& p, AnyExecutor* executor, const Layout& layout) {
          return p.run(executor, layout);
        });
  }
  const auto expect_same = [](const auto& one, const Layout& read, const Layout& written) {
    EXPECT_TRUE(
        same_bits(one.template problem<T>().run(), one.template problem<T>(read).run({}, written)));
  };
  for (const auto& one : this->ends(TestFixture::OfOp::batches())) {
    at_each_level([&] {
      for (const auto& order : all_axis_orders()) {
        const Layout layout{.order = order, .offset = 3, .gap = 2};
        expect_same(one, layout, layout);
      }
      expect_same(one, {.reversed = {true, true, true, true}}, {});
      expect_same(one, {.guard = Guard::before}, {.guard = Guard::before});
    });
  }
}

/// Of a sequence and of each of its heads; NaN beyond the key lengths is not read.
TYPED_TEST(Calls, SequencesAndHeadsAreIndependent) {
  using T = typename TypeParam::Scalar;
  for (const auto& one : TestFixture::OfOp::batches()) {
    const TypeParam p = one.template problem<T>();
    bool draws = false;
    if constexpr (requires { TypeParam::Form::draws(p.op); }) draws = TypeParam::Form::draws(p.op);
    const auto all = p.run();
    for (const T poison : all_poisons<T>()) {
      const TypeParam hidden = one.template problem<T>();
      hidden.hide(poison);
      at_each_level([&] { EXPECT_TRUE(same_bits(p.run(), hidden.run())) << poison; });
    }
    expect_nothing_beyond(p, all);
    for (Index b = 0; b < p.extents.at('b'); ++b) {
      if (draws && b > 0) break;
      Part part = p.sequence(b);
      expect_same_part(p, all, part);
      part.heads = 1;
      for (; part.head < p.extents.at('H'); ++part.head) {
        if (draws && part.head > 0) break;
        expect_same_part(p, all, part);
      }
    }
  }
}

/// Whichever of them are requested; no others are written.
TYPED_TEST(Calls, GradientsDoNotDependOnWhichAreRequested) {
  using T = typename TypeParam::Scalar;
  const auto p = TestFixture::OfOp::batches().front().template problem<T>();
  const CallResult<T> all = p.run();
  std::vector<std::string> names;
  all.for_each([&](const std::string& name, const auto& /*numbers*/) {
    if (name.starts_with("d_")) names.push_back(name);
  });
  for (std::size_t set = 0; set < std::size_t{1} << names.size(); ++set) {
    const auto is_wanted = [&](const std::string& name) {
      const auto at = std::find(names.begin(), names.end(), name) - names.begin();
      return (set >> at & 1) != 0;
    };
    const WrittenTensors to(p.op, p);
    p.op.forward(p.inputs(), to.out().view(), to.saved());
    p.op.backward(p.inputs(), to.out().view(), to.saved(), p.d_out.view(), to.grads(is_wanted));
    const CallResult<T> got = to.result();
    const std::vector<T> nothing(1, std::numeric_limits<T>::quiet_NaN());
    for (const std::string& name : names) {
      EXPECT_TRUE(is_wanted(name)
                      ? same_bits(all[name], got[name])
                      : same_bits(std::vector<T>(got[name].size(), nothing[0]), got[name]))
          << name << ", set " << set;
    }
  }
}

/// No sequence, head or token: what is written is 0, or the lse of no key. No value: the results
/// of the oracle.
TYPED_TEST(Calls, EmptyTensors) {
  using T = typename TypeParam::Scalar;
  for (const std::string empty : {"b", "Hh", "qk", "v"}) {
    SCOPED_TRACE(empty);
    auto one = TestFixture::OfOp::batches().back();
    one.key_lengths = {};
    one.more['w'] = 1;
    if (empty == "b") one.shape.batch = 0;
    if (empty == "Hh") one.shape.query_heads = one.shape.key_heads = 0;
    if (empty == "qk") one.shape.queries = one.shape.keys = 0;
    if (empty == "v") one.shape.value_width = 0;
    const TypeParam p = one.template problem<T>();
    const auto got = p.run();
    if (empty == "v") {
      judge_of_call(p)(got, TypeParam::Form::name);
      continue;
    }
    got.for_each([](const std::string& name, const auto& numbers) {
      const T none = name.ends_with("lse") ? -std::numeric_limits<T>::infinity() : T{0};
      for (const T x : numbers) EXPECT_EQ(x, none) << name;
    });
  }
}

TYPED_TEST(Calls, StayWithinTheirMemory) {
  for (const auto& one : TestFixture::OfOp::batches()) {
    between_fences([&] { one.template problem<typename TypeParam::Scalar>().run(); });
  }
}

TYPED_TEST(Calls, FailedAllocations) {
  for (const auto& one : this->ends(TestFixture::OfOp::batches())) {
    const TypeParam p = one.template problem<typename TypeParam::Scalar>();
    expect_all_or_nothing_of(p.op, p);
  }
}

TYPED_TEST(Calls, RunInArenasOfTheStatedSize) {
  for (const auto& one : TestFixture::OfOp::large()) {
    if (!one.cu_seqlens.empty()) continue;  // packed sequences may need more
    const auto p = one.template problem<typename TypeParam::Scalar>();
    expect_serves_in_arena(p.op, p, p.call_shape());
  }
}

}  // namespace fovea_test::attention_conformance_calls
