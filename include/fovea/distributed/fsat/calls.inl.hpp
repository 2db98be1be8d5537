// SPDX-License-Identifier: MIT
/// \file
/// Included by calls.hpp, which documents it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/distributed/fsat/backward_pass.hpp"
#include "fovea/distributed/fsat/calls.hpp"
#include "fovea/distributed/fsat/forward_pass.hpp"
#include "fovea/distributed/rows/own_range.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Describes the parts of a call that must be equal on all ranks.
template <class T>
std::string fsat_text(const char* pass, const FsatInputs<T>& in, const Sharding& rows) {
  std::string call = call_text(FsatAttention::name(), pass, in, rows);
  return call.append(", dominant ").append(sizes_text(in.dominant));
}

/// Checks this rank's arguments. \param check_tensors called with the inputs and the lengths of its
/// own rows \throws std::invalid_argument
template <class T, class Check>
void check_fsat(const FsatAttention& op, const FsatInputs<T>& inputs, const Sharding& rows,
                const Check& check_tensors) {
  const char* const name = FsatAttention::name();
  if (!inputs.random.empty()) {
    refuse_given(name, "random", "the sequence is distributed over ranks");
  }
  if (op.options.max_length < rows.count()) {
    refuse(name, "max_length", std::to_string(op.options.max_length),
           "at least " + std::to_string(rows.count()) + ", the rows of the sequence");
  }
  check_call(name, inputs, rows, [&](FsatInputs<T> own) {
    // Dominant indices beyond the length are not read.
    const std::vector<Index> lengths = own_lengths(inputs.key_lengths, rows);
    own.key_lengths = lengths;
    check_tensors(own);
  });
}

}  // namespace detail

template <class T>
CommStats DistributedForward<FsatAttention, T>::forward(
    const FsatAttention& op, const FsatInputs<T>& inputs, const View<T>& out,
    const FsatSaved<T>& saved, const Sharding& rows, const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_fsat(op, inputs, rows,
                       [&](const FsatInputs<T>& own) { op.check(own, out, saved); });
  };
  return detail::run_call(rows, call, detail::fsat_text(".forward", inputs, rows), check,
                          [&](const ExecutorRef& /*threads*/) {
                            return std::make_unique<FsatForwardPass<T>>(op.options, inputs, out,
                                                                        saved, rows);
                          });
}

template <class T>
CommStats DistributedBackward<FsatAttention, T>::backward(
    const FsatAttention& op, const FsatInputs<T>& inputs, const View<const T>& out,
    const FsatSaved<T>& saved, const View<const T>& d_out, const FsatGrads<T>& grads,
    const Sharding& rows, const detail::CollectiveCall& call) {
  const auto check = [&] {
    detail::check_fsat(op, inputs, rows, [&](const FsatInputs<T>& own) {
      op.check_backward(own, out, saved, d_out, grads);
    });
  };
  return detail::run_call(rows, call, detail::fsat_text(".backward", inputs, rows), check,
                          [&](const ExecutorRef& /*threads*/) {
                            return std::make_unique<FsatBackwardPass<T>>(op.options, inputs, out,
                                                                         saved, d_out, grads, rows);
                          });
}

FOVEA_RANKS_PASSES(FORWARD, FsatAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, FsatAttention)
FOVEA_RANKS_PASSES(BACKWARD, FsatAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
