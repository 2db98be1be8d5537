// SPDX-License-Identifier: MIT
/// \file
/// The passes of an operator as fovea_scale calls them. Those over ranks are found by their
/// arguments, in the headers of the family that a source includes.
#pragma once

#include <concepts>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "bench/scale/system.hpp"
#include "fovea/attention/attention.hpp"

namespace bench {

/// The operator for a sequence of that many rows. \param op the same for all, or a function of rows
template <class OpOf>
auto op_for(const OpOf& op, Index rows) {
  if constexpr (std::invocable<const OpOf&, Index>) {
    return op(rows);
  } else {
    return op;
  }
}

/// Which tensors of an operator a call has.
struct CallOptions {
  bool saves = false;                   ///< forward passes save what backward ones read
  std::set<std::string> packed = {};    ///< what is of packed rows, with its gradient
  std::set<std::string> left_out = {};  ///< what might be read or written, and is not
};

/// A call with the tensors that the operator's inputs, saved tensors and gradients have members
/// for.
template <class OpOf>
struct Call {
  using Op = decltype(op_for(std::declval<OpOf>(), 0));

  OpOf op;
  CallOptions options;

  /// What a forward pass reads and writes.
  auto forward_arguments(Tensors& t) const {
    return std::tuple(inputs(t), t.written(place("out")), saved(t));
  }
  /// The same of a backward pass.
  auto backward_arguments(Tensors& t) const {
    return std::tuple(inputs(t), View<const float>(t.written(place("out"))), saved(t),
                      t.read(place("d_out")), grads(t));
  }

 private:
  /// The name of a tensor among those of the rank.
  std::string place(const std::string& name) const {
    const bool is_packed = options.packed.contains(name.substr(name.starts_with("d_") ? 2 : 0));
    return (is_packed ? "packed " : "") + name;
  }
  auto inputs(Tensors& t) const {
    using Inputs = fovea::InputsOf<Op, float>;
    return fovea::detail::made_of_tensors<Inputs>([&]<class X>(const std::string& name, X& to) {
      if (!t.has(name) || options.left_out.contains(name)) return;
      if constexpr (std::derived_from<X, View<const Index>>) to = t.lists(kChosen);
      if constexpr (std::derived_from<X, View<const float>>) to = t.read(place(name));
    });
  }
  auto saved(Tensors& t) const {
    using Saved = fovea::SavedOf<Op, float>;
    if (!options.saves) return Saved{};
    return fovea::detail::made_of_tensors<Saved>([&]<class X>(const std::string& name, X& to) {
      if constexpr (std::derived_from<X, View<Index>>) to = t.made_indices(name, t.shape(name));
      if constexpr (std::derived_from<X, View<float>>) to = t.written(place(name));
    });
  }
  auto grads(Tensors& t) const {
    using Grads = fovea::GradsOf<Op, float>;
    return fovea::detail::made_of_tensors<Grads>([&]<class X>(const std::string& of, X& to) {
      const std::string name = "d_" + of;
      if (!t.has(of) || options.left_out.contains(name)) return;
      if constexpr (std::derived_from<X, View<float>>) to = t.written(place(name));
    });
  }
};

/// A forward pass. \param arguments arguments(tensors): a tuple of what it reads and writes
template <class OpOf, class Arguments>
PassOfSystem forward_pass(const OpOf& of, const Arguments& arguments, Costs costs) {
  return {arguments,
          [=](Tensors& t) {
            const auto op = op_for(of, t.sequence());
            std::apply([&](const auto&... x) { op.forward(x...); }, arguments(t));
          },
          [=](Tensors& t, const Sharding& rows) {
            const auto op = op_for(of, t.sequence());
            return std::apply([&](const auto&... x) { return forward(op, x..., rows); },
                              arguments(t));
          },
          std::move(costs)};
}

/// The same of a backward pass.
template <class OpOf, class Arguments>
PassOfSystem backward_pass(const OpOf& of, const Arguments& arguments, Costs costs) {
  return {arguments,
          [=](Tensors& t) {
            const auto op = op_for(of, t.sequence());
            std::apply([&](const auto&... x) { op.backward(x...); }, arguments(t));
          },
          [=](Tensors& t, const Sharding& rows) {
            const auto op = op_for(of, t.sequence());
            return std::apply([&](const auto&... x) { return backward(op, x..., rows); },
                              arguments(t));
          },
          std::move(costs)};
}

/// A system of both passes.
template <class OpOf>
System system_of(Look look, LayoutOf layout, const OpOf& op, const CallOptions& options,
                 const CostsOf& costs, Index multiple = 1) {
  const Call<OpOf> call{op, options};
  return {std::move(look), layout,
          forward_pass(
              op, [=](Tensors& t) { return call.forward_arguments(t); }, costs(false)),
          backward_pass(
              op, [=](Tensors& t) { return call.backward_arguments(t); }, costs(true)),
          multiple};
}

}  // namespace bench
