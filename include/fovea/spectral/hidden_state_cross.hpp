// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of hidden states (FSAT, eqs. 1-4; MATHS.md, section 6), computed by FFTW.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/cross_inputs.hpp"
#include "fovea/spectral/fft_planning.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of HiddenStateCross.
struct CrossOptions {
  FftPlanning planning = FftPlanning::estimate;  ///< how FFTW chooses plans
};

/// out[i] = C0[2i] + C0[2i + 1] - f1[i] f2[i], where C0[k] = sum_{a + b = k} f1[a] f2[b], for each
/// channel alone. The layer normalisation of eq. 4 is not part of it.
///
/// For a sequence of n rows, row n - 1 is +0 by that formula, and the rows from n on are +0. What
/// stands in those rows of f1 and f2 changes no bit: the result is that of the sequence alone.
///
/// Errors are those of transforms: they are small beside |f1| |f2| of the whole channel, not beside
/// each element. A NaN or infinity before the length makes its channel NaN, except for the rows
/// that are +0, and changes no bit of another channel. Bits depend neither on threads, batch or
/// other channels nor on strides, and they are the same at every level that has a fused
/// multiply-add. In a program that lets FFTW measure (FftPlanning) they may differ from one run to
/// the next.
///
/// Let E and O be the transforms, of N >= n elements, of the even and the odd elements of a
/// sequence. Then the transform of C0[2i] + C0[2i + 1] is E1 (E2 + O2) + O1 (E2 + w O2) with
/// w = e^{-2 pi i k / N}. So nothing of length 2N is ever transformed.
///
/// The cost of each channel is two complex transforms of N elements and one of N/2; in the backward
/// pass it is one of N/2 and, for each gradient that is asked for, two of N. Memory is
/// `workspace_bytes`, O(threads L). The plans and roots of the sizes that were used last stay in
/// memory (kCachedPlans). To make a plan may abort the process: see FftPlan.
class HiddenStateCross {
 public:
  CrossOptions options;  ///< The options, which may be changed between calls.

  /// A cross with these options.
  explicit HiddenStateCross(const CrossOptions& chosen = {}) : options(chosen) {}

  /// The name that stands in error messages.
  static constexpr const char* name() { return "HiddenStateCross"; }

  /// Checks what `forward` takes.
  /// \throws std::invalid_argument with a message that names operator, tensor, dimension, expected
  /// and got
  template <class T>
  void check(const CrossInputs<T>& inputs, const View<T>& out) const;

  /// Checks what `backward` takes. \throws std::invalid_argument as `check`
  template <class T>
  void check_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                      const CrossGrads<T>& grads) const;

  /// Computes the cross.
  /// \param out [B, 1, L, C] is written
  /// \throws std::invalid_argument as `check`, or if the arena of the executor is in use or too
  /// small, before anything is written
  /// \throws std::bad_alloc if there is no memory for scratch or plans
  template <class Out, class E = Serial, class T = typename detail::CallScalar<Out>::Type>
  void forward(const CrossInputs<T>& inputs, Out&& out, E&& executor = {}) const {
    constexpr bool is_output = detail::OutputOf<Out, T> && std::floating_point<T>;
    static_assert(is_output,
                  "fovea: out is a tensor of the scalar type of f1 and f2, float or double, that "
                  "can be written: an Eigen tensor [B, 1, L, C], fovea::channels_view of one of "
                  "[B, L, C], or a fovea::View");
    if constexpr (is_output) {
      const View<T> to(out);
      check<T>(inputs, to);
      run<T>(inputs, to, for_call(executor));
    }
  }

  /// Computes the gradients of the loss from d_out, its gradient with respect to out. They are
  /// exact derivatives of `forward`, computed by transforms. In rows of out that are +0, d_out has
  /// no influence. Gradients are +0 in rows beyond the length of a sequence.
  /// \param grads each gradient that is given is written
  /// \throws std::invalid_argument as `check_backward`, or if the arena of the executor is in use
  /// or too small, before anything is written \throws std::bad_alloc if there is no memory for
  /// scratch or plans
  template <class D, class E = Serial, class T = typename detail::CallScalar<D>::Type>
  void backward(const CrossInputs<T>& inputs, const D& d_out,
                const CrossGrads<std::type_identity_t<T>>& grads, E&& executor = {}) const {
    constexpr bool is_gradient = detail::TensorOf<D, T> && std::floating_point<T>;
    static_assert(is_gradient,
                  "fovea: d_out is a tensor of the scalar type of f1 and f2, float or double: an "
                  "Eigen tensor [B, 1, L, C], fovea::channels_view of one of [B, L, C], or a "
                  "fovea::View");
    if constexpr (is_gradient) {
      const View<const T> from(d_out);
      check_backward<T>(inputs, from, grads);
      run_backward<T>(inputs, from, grads, for_call(executor));
    }
  }

  /// The bytes of scratch that `forward` takes with this many workers. Workers beyond the number of
  /// tasks take none.
  template <class T>
  [[nodiscard]] Index workspace_bytes(Index batch, Index length, Index channels,
                                      Index workers = 1) const;

  /// The bytes of scratch that `backward` takes with this many workers. Workers beyond the number
  /// of tasks take none.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(Index batch, Index length, Index channels,
                                               Index workers = 1) const;

 private:
  template <class T>
  void run(const CrossInputs<T>& inputs, const View<T>& out, const ExecutorRef& executor) const;
  template <class T>
  void run_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                    const CrossGrads<T>& grads, const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_FFTW)
#include "fovea/spectral/hidden_state_cross.inl.hpp"
#endif
