// SPDX-License-Identifier: MIT
/// \file
/// Calls of operators with inputs of their own. What both passes write has the names of the
/// operator's saved tensors and gradients. A problem P is what a call reads: it has a type Scalar,
/// inputs(), d_out, and saved_shape(op, name).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/core/arena.hpp"
#include "fovea/core/thread_pool.hpp"
#include "support/central_differences.hpp"
#include "support/compare.hpp"
#include "support/executors.hpp"
#include "support/failing_allocations.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using fovea::detail::made_of_tensors;

/// Tensors, or the numbers in them, by name.
template <class X>
class Named {
 public:
  void add(const std::string& name, X x) { all_.emplace_back(name, std::move(x)); }
  /// The one of that name, or null.
  const X* find(const std::string& name) const {
    for (const auto& [own, x] : all_) {
      if (own == name) return &x;
    }
    return nullptr;
  }
  /// \pre there is one
  const X& operator[](const std::string& name) const { return *find(name); }
  /// Calls f(name, x) for each.
  template <class F>
  void for_each(F&& f) const {
    // NOLINTNEXTLINE(readability-redundant-string-cstr): f may take a const char*
    for (const auto& [name, x] : all_) f(name.c_str(), x);
  }

 private:
  std::vector<std::pair<std::string, X>> all_;
};

/// The results of both passes, in logical order: out, lse and so on, and gradients as d_q.
template <class T>
using CallResult = Named<std::vector<T>>;

/// The outputs of both passes of `Op`, initialised to NaN in one layout.
template <class Op, class P>
class WrittenTensors {
  using T = typename P::Scalar;
  using Inputs = fovea::InputsOf<Op, T>;
  using Saved = fovea::SavedOf<Op, T>;
  using Grads = fovea::GradsOf<Op, T>;

 public:
  WrittenTensors(const Op& op, const P& p, const Layout& layout = {}) {
    const Inputs in = p.inputs();
    made_.add("out", Tensor<T>(p.d_out.shape(), layout));
    made_of_tensors<Saved>([&]<class Member>(const char* name, const Member& /*member*/) {
      const Shape shape = p.saved_shape(op, name);
      if constexpr (kIsIndex<Member>) {
        chosen_.add(name, Tensor<Index>(shape, layout));
      } else {
        made_.add(name, Tensor<T>(shape, layout));
      }
    });
    made_of_tensors<Grads>([&](const std::string& name, const auto& /*member*/) {
      bool is_input = false;
      in.for_each_tensor([&]<class X>(const std::string& own, const X& x) {
        if (own != name) return;
        is_input = true;
        if constexpr (fovea::Viewable<X>) {
          if (!x.empty()) grads_.add("d_" + name, Tensor<T>(x.shape(), layout));
        }
      });
      EXPECT_TRUE(is_input) << name;
    });
  }

  const Tensor<T>& out() const { return made_["out"]; }
  /// \param all whether the forward pass saves what the backward pass would compute again
  Saved saved(bool all = true) const {
    return made_of_tensors<Saved>([&]<class Member>(const std::string& name, Member& member) {
      if (!all && name != "lse") return;
      if constexpr (kIsIndex<Member>) {
        member = chosen_[name].view();
      } else {
        member = made_[name].view();
      }
    });
  }
  /// Indices that the forward pass saves.
  const Tensor<Index>& chosen(const std::string& name) const { return chosen_[name]; }
  Grads grads() const {
    return grads([](const std::string& /*name*/) { return true; });
  }
  /// Those that is_wanted(name) is true of.
  template <class F>
  Grads grads(const F& is_wanted) const {
    return made_of_tensors<Grads>([&]<class Member>(const std::string& name, Member& member) {
      if constexpr (fovea::Viewable<Member>) {
        const Tensor<T>* const x = grads_.find("d_" + name);
        if (x != nullptr && is_wanted("d_" + name)) member = x->view();
      }
    });
  }

  /// What the forward pass writes.
  std::vector<const Tensor<T>*> of_forward(bool all = true) const {
    std::vector<const Tensor<T>*> tensors;
    made_.for_each([&](const std::string& name, const Tensor<T>& x) {
      if (all || name == "out" || name == "lse") tensors.push_back(&x);
    });
    return tensors;
  }
  /// What the backward pass writes.
  std::vector<const Tensor<T>*> of_backward() const {
    std::vector<const Tensor<T>*> tensors;
    grads_.for_each([&](const char* /*name*/, const Tensor<T>& x) { tensors.push_back(&x); });
    return tensors;
  }

  /// The numbers, if memory between them did not change.
  CallResult<T> result(bool all = true) const {
    CallResult<T> result;
    const auto add = [&](const std::string& name, const Tensor<T>& x) {
      EXPECT_EQ(x.changed_gaps(), 0) << name;
      if (all || name == "out" || name == "lse" || name.starts_with("d_")) {
        result.add(name, x.values());
      }
    };
    made_.for_each(add);
    grads_.for_each(add);
    return result;
  }

 private:
  template <class Member>
  static constexpr bool kIsIndex = std::same_as<fovea::Scalar<Member>, Index>;

  Named<Tensor<T>> made_;
  Named<Tensor<Index>> chosen_;
  Named<Tensor<T>> grads_;
};

/// Runs both passes.
/// \param saves whether the forward pass saves what the backward pass would compute again
template <class Op, class P>
CallResult<typename P::Scalar> run_call(const Op& op, const P& p, AnyExecutor* executor = nullptr,
                                        const Layout& layout = {}, bool saves = true) {
  const WrittenTensors<Op, P> to(op, p, layout);
  on_executor(executor, [&](auto&& on) {
    op.forward(p.inputs(), to.out().view(), to.saved(saves), on);
    op.backward(p.inputs(), to.out().view(), to.saved(saves), p.d_out.view(), to.grads(), on);
  });
  return to.result(saves);
}

/// The expected numbers of one result, and the bound on their ratio.
template <class T>
struct ExpectedTensor {
  const char* name;
  Reference<T> expected;
  double bound;
  bool is_optional = false;  // whether the call may not have saved it
};

/// Returns judge(result, name), which compares results with their oracle. \param name in the table
/// of worst errors
template <class T>
auto judge_of(std::vector<ExpectedTensor<T>> all) {
  return [all = std::move(all)](const CallResult<T>& got, const std::string& name) {
    for (const ExpectedTensor<T>& one : all) {
      const std::vector<T>* const numbers = got.find(one.name);
      if (numbers == nullptr) {
        EXPECT_TRUE(one.is_optional || one.expected.value.empty()) << one.name << " is missing";
        continue;
      }
      EXPECT_TRUE(within_ratio(*numbers, one.expected, one.bound, {name, one.name})) << one.name;
    }
  };
}

/// Whichever allocation fails, each pass writes all or nothing.
template <class Op, class P>
void expect_all_or_nothing_of(const Op& op, const P& p) {
  using T = typename P::Scalar;
  const WrittenTensors<Op, P> to(op, p);
  for (const bool saves : {true, false}) {
    expect_all_or_nothing<T>(to.of_forward(saves), [&](AnyExecutor* executor) {
      on_executor(executor,
                  [&](auto&& on) { op.forward(p.inputs(), to.out().view(), to.saved(saves), on); });
    });
    expect_all_or_nothing<T>(to.of_backward(), [&](AnyExecutor* executor) {
      on_executor(executor, [&](auto&& on) {
        op.backward(p.inputs(), to.out().view(), to.saved(saves), p.d_out.view(), to.grads(), on);
      });
    });
  }
}

/// The bytes that an operator states for both passes of such a call.
template <class T, class Op>
std::pair<Index, Index> stated_bytes(const Op& op, const typename Op::Shape& shape, Index threads) {
  if constexpr (requires { op.template global_workspace_bytes<T>(shape, threads); }) {
    return {op.template global_workspace_bytes<T>(shape, threads),
            op.template global_backward_workspace_bytes<T>(shape, threads)};
  } else {
    return {op.template workspace_bytes<T>(shape, threads),
            op.template backward_workspace_bytes<T>(shape, threads)};
  }
}

/// The stated bytes are sufficient, and an arena that is too small is refused.
template <class Op, class P>
void expect_serves_in_arena(const Op& op, const P& p, const typename Op::Shape& shape) {
  using T = typename P::Scalar;
  for (const int threads : {1, 3}) {
    fovea::ThreadPool pool(threads);
    const auto [forward, backward] = stated_bytes<T>(op, shape, threads);
    fovea::Arena arena(std::max(forward, backward));
    AnyExecutor executor = AnyExecutor::of(pool, &arena);
    for (const bool saves : {true, false}) {
      EXPECT_TRUE(
          same_bits(run_call(op, p, nullptr, {}, saves), run_call(op, p, &executor, {}, saves)));
    }
    fovea::Arena of_forward(forward);
    const Tensor<T> out(p.d_out.shape());
    op.forward(p.inputs(), out.view(), of_forward.on(pool));
    fovea::Arena none(0);
    AnyExecutor without = AnyExecutor::of(pool, &none);
    out.fill(constant(kUntouched));
    EXPECT_THROW(op.forward(p.inputs(), out.view(), without), std::invalid_argument);
    EXPECT_TRUE(is_untouched(out.values()));
  }
}

/// Compares every gradient with central differences of <out, d_out>.
template <class Op, class P>
void expect_differences(const Op& op, const P& p, double tolerance = 1e-7) {
  const CallResult<double> got = run_call(op, p);
  const Tensor<double> out(p.d_out.shape());
  const auto loss = [&] {
    op.forward(p.inputs(), out.view());
    double sum = 0;
    for_each_index(out.shape(), [&](Index b, Index h, Index n, Index d) {
      sum += out(b, h, n, d) * p.d_out(b, h, n, d);
    });
    return sum;
  };
  const fovea::InputsOf<Op, double> inputs = p.inputs();
  inputs.for_each_tensor([&]<class X>(const std::string& name, const X& x) {
    const std::vector<double>* const gradient = got.find("d_" + name);
    if (gradient == nullptr) return;
    if constexpr (std::convertible_to<X, View<const double>>) {
      const View<double> element(const_cast<double*>(x.data()), x.shape(), x.strides());
      double largest = 0;
      for_each_difference(element, 1e-5, loss, [&](std::size_t n, double difference) {
        largest = std::max(largest, std::abs(difference));
        EXPECT_NEAR((*gradient)[n], difference, tolerance * (1 + std::abs(difference)))
            << name << " " << n;
      });
      EXPECT_GT(largest, 1e-3) << name;
    }
  });
}

}  // namespace fovea_test
