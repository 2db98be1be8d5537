// SPDX-License-Identifier: MIT
/// \file
/// Included by cross_calls.hpp, which documents it.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/distributed/messages/channel_all_to_all.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/distributed/spectral/cross_calls.hpp"
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
