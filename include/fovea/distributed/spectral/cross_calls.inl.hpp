// SPDX-License-Identifier: MIT
/// \file
/// Included by cross_calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/distributed/spectral/cross_calls.hpp"
#include "fovea/distributed/spectral/cross_passes.hpp"
#include "fovea/spectral/cross_check.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string cross_text(const char* pass, const CrossInputs<T>& in, const Sharding& rows) {
  std::string text(HiddenStateCross::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number, f1 ").append(sizes_text(in.f1));
  text.append(", f2 ").append(sizes_text(in.f2));
  return text.append(" (batch, heads, width)").append(numbers_text(in));
}

/// Checks this rank's arguments. \param check_tensors called with the inputs, without key lengths,
/// which refer to the whole sequence \throws std::invalid_argument
template <class T, class Check>
void check_cross(const CrossInputs<T>& in, const Sharding& rows, const Check& check_tensors) {
  const char* const name = HiddenStateCross::name();
  check_own_rows(name, "f1", in.f1, rows);
  CrossInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(name, in.key_lengths, in.f1.batch(), "f1", rows.count(),
                                   "the sequence");
  if (rows.count() <= kLongestCross) return;
  refuse(name, "rows of the sequence", std::to_string(rows.count()),
         "at most " + std::to_string(kLongestCross) + ", the limit of FFTW");
}

}  // namespace detail

template <class T>
CommStats CrossCalls<T>::forward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                                 const View<T>& out, const Sharding& rows,
                                 const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_cross(inputs, rows,
                        [&](const CrossInputs<T>& own) { op.template check<T>(own, out); });
  };
  return detail::run_call(rows, call, detail::cross_text(".forward", inputs, rows), check,
                          [&](const ExecutorRef& /*threads*/) {
                            return std::make_unique<CrossForwardPass<T>>(op.options, inputs, out,
                                                                         rows);
                          });
}

template <class T>
CommStats CrossCalls<T>::backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                                  const View<const T>& d_out, const CrossGrads<T>& grads,
                                  const Sharding& rows, const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_cross(inputs, rows, [&](const CrossInputs<T>& own) {
      op.template check_backward<T>(own, d_out, grads);
    });
  };
  return detail::run_call(rows, call, detail::cross_text(".backward", inputs, rows), check,
                          [&](const ExecutorRef& /*threads*/) {
                            return std::make_unique<CrossBackwardPass<T>>(op.options, inputs, d_out,
                                                                          grads, rows);
                          });
}

FOVEA_FLOAT_AND_DOUBLE_PASSES(CrossCalls)

}  // namespace distributed

FOVEA_NAMESPACE_END
