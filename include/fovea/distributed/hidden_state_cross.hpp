// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of hidden states over a sequence that is spread over ranks: each rank
/// transforms all rows of some channels. It needs FFTW, too, so fovea/distributed.hpp leaves it
/// out.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "fovea/core/tensor_check.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/channel_slices.hpp"
#include "fovea/spectral/cross_backward.hpp"
#include "fovea/spectral/cross_check.hpp"
#include "fovea/spectral/cross_forward.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The inputs of a cross, of which this rank has some channels.
template <class T>
class CrossSlices {
 public:
  /// Takes all memory. \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossSlices(const CrossInputs<T>& inputs, const Rows& rows)
      : inputs_(inputs),
        f1_(rows, inputs.f1.batch(), inputs.f1.width()),
        f2_(rows, inputs.f1.batch(), inputs.f1.width()) {}

  /// Brings the rows of all ranks.
  void bring() {
    f1_.bring(inputs_.f1);
    f2_.bring(inputs_.f2);
  }
  /// All rows of this rank's channels.
  CrossInputs<T> inputs() { return {f1_.slice(), f2_.slice(), inputs_.key_lengths}; }
  /// The messages of this rank so far.
  Traffic traffic() const { return f1_.traffic() + f2_.traffic(); }

 private:
  CrossInputs<T> inputs_;
  ChannelSlices<T> f1_;
  ChannelSlices<T> f2_;
};

/// What is the same on all ranks of a call, in words.
template <class T>
std::string cross_text(const char* pass, const CrossInputs<T>& in, const Rows& rows) {
  std::string text(HiddenStateCross::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes a number, f1 ").append(sizes_text(in.f1));
  text.append(", f2 ").append(sizes_text(in.f2));
  return text.append(" (batch, heads, width)").append(numbers_text(in));
}

/// Checks what this rank brings to a cross. \param check_tensors called with the inputs, without
/// key lengths, which are of the whole sequence \throws std::invalid_argument
template <class T, class Check>
void check_cross(const CrossInputs<T>& in, const Rows& rows, const Check& check_tensors) {
  const char* const name = HiddenStateCross::name();
  check_own_rows(name, "f1", in.f1, rows);
  CrossInputs<T> own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(name, in.key_lengths, in.f1.batch(), "f1", rows.count(),
                                   "the sequence");
  if (rows.count() <= kLongestCross) return;
  refuse(name, "rows of the sequence", std::to_string(rows.count()),
         "at most " + std::to_string(kLongestCross) + ", the most that FFTW takes");
}

}  // namespace detail

/// One forward pass of a cross.
template <class T>
class CrossForwardPass {
 public:
  /// Takes the memory for tensors, and makes plans.
  /// \param inputs, out those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossForwardPass(const CrossOptions& options, const CrossInputs<T>& inputs, const View<T>& out,
                   const Rows& rows)
      : out_(out),
        inputs_(inputs, rows),
        made_(rows, out.batch(), out.width()),
        cross_(inputs_.inputs(), made_.slice(), options.planning) {}
  CrossForwardPass(const CrossForwardPass&) = delete;
  CrossForwardPass& operator=(const CrossForwardPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return inputs_.traffic() + made_.traffic(); }

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    inputs_.bring();
    const std::exception_ptr error = fovea::detail::caught([&] { cross_.run(executor); });
    made_.bring_back(error ? View<T>() : out_);
    return error;
  }

 private:
  View<T> out_;
  detail::CrossSlices<T> inputs_;
  ChannelSlices<T> made_;
  CrossForward<T> cross_;
};

/// One backward pass of a cross. Every rank makes the same steps, whatever gradients it wants.
template <class T>
class CrossBackwardPass {
 public:
  /// Takes the memory for tensors, and makes plans.
  /// \param inputs, d_out, grads those of this rank, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  CrossBackwardPass(const CrossOptions& options, const CrossInputs<T>& inputs,
                    const View<const T>& d_out, const CrossGrads<T>& grads, const Rows& rows)
      : own_d_out_(d_out),
        grads_(grads),
        inputs_(inputs, rows),
        d_out_(rows, d_out.batch(), d_out.width()),
        d_f1_(rows, d_out.batch(), d_out.width()),
        d_f2_(rows, d_out.batch(), d_out.width()),
        cross_(inputs_.inputs(), View<const T>(d_out_.slice()), {d_f1_.slice(), d_f2_.slice()},
               options.planning) {}
  CrossBackwardPass(const CrossBackwardPass&) = delete;
  CrossBackwardPass& operator=(const CrossBackwardPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const {
    return inputs_.traffic() + d_out_.traffic() + d_f1_.traffic() + d_f2_.traffic();
  }

  /// Computes the gradients of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
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
  ChannelSlices<T> d_out_;
  ChannelSlices<T> d_f1_;
  ChannelSlices<T> d_f2_;
  CrossBackward<T> cross_;
};

/// Computes the cross of a sequence that is spread over ranks, on all of them together; every rank
/// calls it with its own rows. The bits are those of `op.forward` over the whole sequence.
/// \param inputs f1 and f2 of this rank's rows, [B, 1, own rows, C] in ascending order; key lengths
/// count rows of the whole sequence
/// \param out [B, 1, own rows, C], written
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: that of a share of the channels, and all numbers travel: f1 and f2 to the ranks of their
/// channels, and the result back. Memory: all rows of this rank's channels of three tensors, three
/// times.
template <class T, class E = Serial>
Traffic forward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                const View<std::type_identity_t<T>>& out, const Rows& rows, E&& executor = {}) {
  return detail::run_call(
      rows, op, detail::cross_text(".forward", inputs, rows),
      [&] {
        detail::check_cross(inputs, rows,
                            [&](const CrossInputs<T>& own) { op.template check<T>(own, out); });
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<CrossForwardPass<T>>(op.options, inputs, out, rows);
      });
}

/// Computes the gradients of the cross of a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`   \param d_out [B, 1, own rows, C]
/// \param grads of this rank's rows: those that have a tensor are written; the ranks may want
/// different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
template <class T, class E = Serial>
Traffic backward(const HiddenStateCross& op, const CrossInputs<T>& inputs,
                 const View<const std::type_identity_t<T>>& d_out,
                 const CrossGrads<std::type_identity_t<T>>& grads, const Rows& rows,
                 E&& executor = {}) {
  return detail::run_call(
      rows, op, detail::cross_text(".backward", inputs, rows),
      [&] {
        detail::check_cross(inputs, rows, [&](const CrossInputs<T>& own) {
          op.template check_backward<T>(own, d_out, grads);
        });
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<CrossBackwardPass<T>>(op.options, inputs, d_out, grads, rows);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
