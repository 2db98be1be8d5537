// SPDX-License-Identifier: MIT
/// \file
/// A type-erased decoder of any operator, for the conformance suite.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention.hpp"
#include "support/executors.hpp"

namespace fovea_test {

using bench::AllInputs;
using bench::AllSaved;

/// The requirements of IncrementalAttention for a decoder.
template <class T>
struct AnyDecoder {
  /// Inputs with the new tokens, or with none; out, saved, and an executor or null.
  std::function<void(const AllInputs<T>&, const View<T>&, const AllSaved<T>&, AnyExecutor*)>
      step_on;
  /// The inputs that belong to tokens.
  std::function<void(const AllInputs<T>&)> append;
  std::function<Index()> length;
  std::function<void(Index)> reserve;
  std::function<AnyDecoder()> fork;
  std::function<void(Index)> rollback;
  std::function<void()> clear;
  std::function<std::vector<std::byte>()> save;             // or none
  std::function<void(std::span<const std::byte>)> restore;  // or none

  void step(const AllInputs<T>& in, const View<T>& out, const AllSaved<T>& saved) const {
    step_on(in, out, saved, nullptr);
  }
};

/// The tokens of some inputs, for a decoder of `Op`.
template <class Op, class T>
typename Op::template Tokens<T> tokens_of(const AllInputs<T>& in) {
  typename Op::template Tokens<T> tokens;
  tokens.k = in.k;
  tokens.v = in.v;
  if constexpr (requires { tokens.beta; }) tokens.beta = in.beta;
  if constexpr (requires { tokens.sketch_k; }) tokens.sketch_k = in.sketch_k;
  if constexpr (requires { tokens.projection; }) tokens.projection = in.projection;
  return tokens;
}

/// \param decoder of `Op`
/// \param read read(inputs, f) calls f with what the decoder reads instead of these inputs
template <class Op, class T, class Decoder, class Read>
AnyDecoder<T> any_decoder(Decoder decoder, const Read& read) {
  const auto held = std::make_shared<Decoder>(std::move(decoder));
  AnyDecoder<T> any;
  any.step_on = [held, read](const AllInputs<T>& in, const View<T>& out, const AllSaved<T>& saved,
                             AnyExecutor* executor) {
    read(in, [&](const AllInputs<T>& all) {
      if (executor == nullptr) {
        held->step(all, out, saved);
      } else {
        held->step(all, out, saved, *executor);
      }
    });
  };
  any.append = [held, read](const AllInputs<T>& in) {
    read(in, [&](const AllInputs<T>& all) { held->append(tokens_of<Op>(all)); });
  };
  any.length = [held] { return held->length(); };
  any.reserve = [held](Index tokens) { held->reserve(tokens); };
  any.fork = [held, read] { return any_decoder<Op, T>(held->fork(), read); };
  any.rollback = [held](Index tokens) { held->rollback(tokens); };
  any.clear = [held] { held->clear(); };
  if constexpr (requires { held->save(); }) {
    any.save = [held] { return held->save(); };
    any.restore = [held](std::span<const std::byte> bytes) { held->restore(bytes); };
  }
  return any;
}

/// A decoder that reads what it is given.
template <class Op, class T, class Decoder>
AnyDecoder<T> any_decoder(Decoder decoder) {
  return any_decoder<Op, T>(std::move(decoder),
                            [](const AllInputs<T>& in, const auto& f) { f(in); });
}

}  // namespace fovea_test
