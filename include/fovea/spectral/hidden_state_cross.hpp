// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of hidden states (FSAT, eqs. 1-4; MATHS.md, section 6), by FFTW.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "fovea/spectral/cross_backward.hpp"
#include "fovea/spectral/cross_forward.hpp"

FOVEA_NAMESPACE_BEGIN

struct CrossOptions {
  FftPlanning planning = FftPlanning::estimate;
};

/// out[i] = C0[2i] + C0[2i + 1] - f1[i] f2[i], where C0[k] = sum_{a + b = k} f1[a] f2[b], of each
/// channel alone; without the layer normalisation of eq. 4.
/// Row n - 1, n the sequence's length, is +0 by that formula, and rows from n on are +0. What
/// stands there in f1 and f2 changes no bit: the result is that of the sequence alone.
/// Errors are of transforms: small beside |f1| |f2| of the channel, not beside each element. A NaN
/// or infinity before the length makes its channel NaN, but the rows that are +0, and changes no
/// bit of another one. Bits depend neither on threads, batch, other channels nor strides,
/// and are the same at every level that has a fused multiply-add; in a program that lets FFTW
/// measure (FftPlanning) they may differ from one run to the next.
///
/// With E and O the transforms, of N >= n elements, of the even and the odd elements of a sequence,
/// that of C0[2i] + C0[2i + 1] is E1 (E2 + O2) + O1 (E2 + w O2), w = e^{-2 pi i k / N}: nothing of
/// length 2N is ever transformed.
/// Cost per channel: complex transforms, two of N and one of N/2; backward one of N/2 and, for each
/// gradient that is asked for, two of N. Memory: `workspace_bytes`, O(threads L). Plans and roots
/// of the sizes used last stay in memory (kCachedPlans). To make a plan may abort: see FftPlan.
class HiddenStateCross {
 public:
  CrossOptions options;

  explicit HiddenStateCross(const CrossOptions& chosen = {}) : options(chosen) {}

  static constexpr const char* name() { return "HiddenStateCross"; }

  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got
  template <class T>
  void check(const CrossInputs<T>& inputs, const View<T>& out) const {
    check_cross_inputs(name(), inputs);
    check_cross_output(name(), "out", out, inputs);
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                      const CrossGrads<T>& grads) const {
    check_cross_inputs(name(), inputs);
    detail::check_extents(name(), "d_out", d_out.shape(), inputs.f1.shape(), "as of f1");
    constexpr const char* f1 = "the gradient of f1";
    constexpr const char* f2 = "the gradient of f2";
    for (const auto& [tensor, grad] : {std::pair{f1, grads.f1}, std::pair{f2, grads.f2}}) {
      if (grad.is_none()) continue;
      check_cross_output(name(), tensor, grad, inputs);
      detail::check_apart(name(), tensor, grad, "d_out", d_out);
    }
    detail::check_apart(name(), f2, grads.f2, f1, grads.f1);
  }

  /// \param out [B, 1, L, C] is written
  /// \throws as `check`, before anything is written; std::bad_alloc for scratch and plans.
  template <class T, class E = Serial>
  void forward(const CrossInputs<T>& inputs, const View<std::type_identity_t<T>>& out,
               E&& executor = {}) const {
    check<T>(inputs, out);
    CrossForward<T>(inputs, out, options.planning).run(as_executor(executor));
  }

  /// Gradients of the loss from d_out, its gradient with respect to out: exact derivatives of
  /// `forward`, by transforms. d_out of rows that are +0 is not read into them, and gradients of
  /// rows beyond a sequence's length are +0.
  /// \param grads written, each if it is given
  /// \throws as `check_backward`, before anything is written; std::bad_alloc for scratch and plans.
  template <class T, class E = Serial>
  void backward(const CrossInputs<T>& inputs, const View<const std::type_identity_t<T>>& d_out,
                const CrossGrads<std::type_identity_t<T>>& grads, E&& executor = {}) const {
    check_backward<T>(inputs, d_out, grads);
    CrossBackward<T>(inputs, d_out, grads, options.planning).run(as_executor(executor));
  }

  /// Bytes of scratch of `forward` with that many workers; no more than there are tasks work.
  template <class T>
  [[nodiscard]] Index workspace_bytes(Index batch, Index length, Index channels,
                                      Index workers = 1) const {
    return CrossForward<T>::workspace_bytes(length,
                                            busy_workers<T>(batch, length, channels, workers));
  }

  /// The same of `backward`.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(Index batch, Index length, Index channels,
                                               Index workers = 1) const {
    return CrossBackward<T>::workspace_bytes(length,
                                             busy_workers<T>(batch, length, channels, workers));
  }

 private:
  template <class T>
  static Index busy_workers(Index batch, Index length, Index channels, Index workers) {
    const Index of_task = cross_channels<T>(length);
    const Index tasks = batch * ((channels + of_task - 1) / of_task);
    return length == 0 ? 0 : (std::min)(tasks, workers);
  }
};

FOVEA_NAMESPACE_END
