// SPDX-License-Identifier: MIT
/// \file
/// The passes and calls of the Fourier cross over ranks, included by hidden_state_cross.hpp.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/channel_all_to_all.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/cross_backward.hpp"
#include "fovea/spectral/cross_check.hpp"
#include "fovea/spectral/cross_forward.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The inputs of a cross, for this rank's channels.
template <class T>
class CrossSlices {
 public:
  /// Allocates all memory. \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossSlices(const CrossInputs<T>& inputs, const Sharding& rows)
      : inputs_(inputs),
        f1_(rows, inputs.f1.batch(), inputs.f1.width()),
        f2_(rows, inputs.f1.batch(), inputs.f1.width()) {}

  /// Gathers the rows of all ranks.
  void bring() {
    f1_.bring(inputs_.f1);
    f2_.bring(inputs_.f2);
  }
  /// All rows of this rank's channels.
  CrossInputs<T> inputs() { return {f1_.slice(), f2_.slice(), inputs_.key_lengths}; }

 private:
  CrossInputs<T> inputs_;
  ChannelAllToAll<T> f1_;
  ChannelAllToAll<T> f2_;
};

}  // namespace detail

/// One forward pass of a cross.
template <class T>
class CrossForwardPass final : public RankPass {
 public:
  /// Allocates tensors, and creates plans.
  /// \param inputs, out this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossForwardPass(const CrossOptions& options, const CrossInputs<T>& inputs, const View<T>& out,
                   const Sharding& rows)
      : out_(out),
        inputs_(inputs, rows),
        made_(rows, out.batch(), out.width()),
        cross_(inputs_.inputs(), made_.slice(), options.planning) {}

  /// Computes this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    inputs_.bring();
    const std::exception_ptr error = fovea::detail::caught([&] { cross_.run(executor); });
    made_.bring_back(error ? View<T>() : out_);
    return error;
  }

 private:
  View<T> out_;
  detail::CrossSlices<T> inputs_;
  ChannelAllToAll<T> made_;
  CrossForward<T> cross_;
};

/// One backward pass of a cross. Every rank takes the same steps, whichever gradients it requests.
template <class T>
class CrossBackwardPass final : public RankPass {
 public:
  /// Allocates tensors, and creates plans.
  /// \param inputs, d_out, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossBackwardPass(const CrossOptions& options, const CrossInputs<T>& inputs,
                    const View<const T>& d_out, const CrossGrads<T>& grads, const Sharding& rows)
      : own_d_out_(d_out),
        grads_(grads),
        inputs_(inputs, rows),
        d_out_(rows, d_out.batch(), d_out.width()),
        d_f1_(rows, d_out.batch(), d_out.width()),
        d_f2_(rows, d_out.batch(), d_out.width()),
        cross_(inputs_.inputs(), View<const T>(d_out_.slice()), {d_f1_.slice(), d_f2_.slice()},
               options.planning) {}

  /// Computes the gradients of this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    inputs_.bring();
    d_out_.bring(own_d_out_);
    const std::exception_ptr error = fovea::detail::caught([&] { cross_.run(executor); });
    d_f1_.bring_back(error ? View<T>() : View<T>(grads_.f1));
    d_f2_.bring_back(error ? View<T>() : View<T>(grads_.f2));
    return error;
  }

 private:
  View<const T> own_d_out_;
  CrossGrads<T> grads_;
  detail::CrossSlices<T> inputs_;
  ChannelAllToAll<T> d_out_;
  ChannelAllToAll<T> d_f1_;
  ChannelAllToAll<T> d_f2_;
  CrossBackward<T> cross_;
};

namespace detail {

/// Makes a call.
/// \param check_tensors called with the inputs, without key lengths, which refer to the whole
/// sequence \param prepare as in run_call
template <class T, class Check>
CommStats run_cross(const char* pass, const CrossInputs<T>& in, const Sharding& rows,
                    const CollectiveCall& call, const Check& check_tensors,
                    FunctionRef<std::shared_ptr<RankPass>(const ExecutorRef&)> prepare) {
  std::string text(call.name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number, f1 ").append(sizes_text(in.f1));
  text.append(", f2 ").append(sizes_text(in.f2)).append(" (batch, heads, width)");
  text.append(numbers_text(in));
  const auto check = [&] {
    check_own_rows(call.name(), "f1", in.f1, rows);
    CrossInputs<T> own = in;
    own.key_lengths = {};
    check_tensors(own);
    fovea::detail::check_key_lengths(call.name(), in.key_lengths, in.f1.batch(), "f1", rows.count(),
                                     "the sequence");
    if (rows.count() <= kLongestCross) return;
    refuse(call.name(), "rows of the sequence", std::to_string(rows.count()),
           "at most " + std::to_string(kLongestCross) + ", the limit of FFTW");
  };
  return run_call(rows, call, text, check, prepare);
}

}  // namespace detail

template <class T>
CommStats cross(const HiddenStateCross& op, const CrossInputs<T>& inputs, const View<T>& out,
                const Sharding& rows, const detail::CollectiveCall& call) {
  return detail::run_cross(
      ".forward", inputs, rows, call,
      [&](const CrossInputs<T>& own) { op.template check<T>(own, out); },
      [&](const ExecutorRef& /*threads*/) {
        return std::make_unique<CrossForwardPass<T>>(op.options, inputs, out, rows);
      });
}

template <class T>
CommStats cross_backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                         const View<const T>& d_out, const CrossGrads<T>& grads,
                         const Sharding& rows, const detail::CollectiveCall& call) {
  return detail::run_cross(
      ".backward", inputs, rows, call,
      [&](const CrossInputs<T>& own) { op.template check_backward<T>(own, d_out, grads); },
      [&](const ExecutorRef& /*threads*/) {
        return std::make_unique<CrossBackwardPass<T>>(op.options, inputs, d_out, grads, rows);
      });
}

#define FOVEA_CROSS_CALLS(Op, T)                                                              \
  template CommStats cross(const Op&, const CrossInputs<T>&, const View<T>&, const Sharding&, \
                           const detail::CollectiveCall&);                                    \
  template CommStats cross_backward(const Op&, const CrossInputs<T>&, const View<const T>&,   \
                                    const CrossGrads<T>&, const Sharding&,                    \
                                    const detail::CollectiveCall&);
FOVEA_IN_FLOAT_UNIT(FOVEA_CROSS_CALLS, HiddenStateCross)
FOVEA_IN_DOUBLE_UNIT(FOVEA_CROSS_CALLS, HiddenStateCross)

}  // namespace distributed

FOVEA_NAMESPACE_END
