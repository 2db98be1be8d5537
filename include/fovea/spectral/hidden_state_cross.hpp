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
/// channel. The layer normalisation of eq. 4 is not included. Row i depends on rows up to 2i + 1,
/// so there is no causal form. There is no decoder.
///
/// For a sequence of n rows, row n - 1 is +0 by that formula, and rows from n on are +0. The
/// contents of f1 and f2 in rows from n on do not affect the result.
///
/// Errors are small relative to |f1| |f2| of the whole channel, not to each element. A NaN or
/// infinity before the length makes its channel NaN, except for the rows that are +0, and does not
/// affect other channels. Results are bit-identical for all threads, batches, other channels and
/// strides, and for all levels with a fused multiply-add; if the program lets FFTW measure
/// (FftPlanning), they may differ between runs.
///
/// Let E and O be the transforms, of N >= n elements, of the even and the odd elements of a
/// sequence. Then the transform of C0[2i] + C0[2i + 1] is E1 (E2 + O2) + O1 (E2 + w O2) with w =
/// e^{-2 pi i k / N}. So no transform of length 2N is needed.
///
/// Cost per channel: two complex transforms of N elements and one of N/2; in the backward pass one
/// of N/2 and, for each requested gradient, two of N. Memory: `workspace_bytes`, O(threads L).
/// Recently used plans and roots are cached (kCachedPlans). Planning may abort the process: see
/// FftPlan.
class HiddenStateCross {
 public:
  CrossOptions options;  ///< The options, which may be changed between calls.

  /// A cross with these options.
  explicit HiddenStateCross(const CrossOptions& chosen = {}) : options(chosen) {}

  /// The name in error messages.
  static constexpr const char* name() { return "HiddenStateCross"; }

  /// Checks the arguments of `forward`.
  /// \throws std::invalid_argument if they are invalid
  template <class T>
  void check(const CrossInputs<T>& inputs, const View<T>& out) const;

  /// Checks the arguments of `backward`. \throws std::invalid_argument as `check`
  template <class T>
  void check_backward(const CrossInputs<T>& inputs, const View<const T>& d_out,
                      const CrossGrads<T>& grads) const;

  /// Computes the cross.
  /// \param out [B, 1, L, C] is written
  /// \throws std::invalid_argument as `check`, or if the executor's arena is in use or too small,
  /// before anything is written
  /// \throws std::bad_alloc if allocation fails
  template <class Out, class E = Serial, class T = typename detail::CallScalar<Out>::Type>
  void forward(const CrossInputs<T>& inputs, Out&& out, E&& executor = {}) const {
    constexpr bool is_output = detail::OutputOf<Out, T> && std::floating_point<T>;
    static_assert(
        is_output,
        "fovea: out must be a writable tensor of the scalar type of f1 and f2, float or double: an "
        "Eigen tensor [B, 1, L, C], fovea::channels_view of one of [B, L, C], or a fovea::View");
    if constexpr (is_output) {
      const View<T> to(out);
      check<T>(inputs, to);
      run<T>(inputs, to, for_call(executor));
    }
  }

  /// Computes the gradients of the loss from d_out, its gradient with respect to out. They are
  /// exact derivatives of `forward`, computed by transforms. d_out is ignored in rows where out is
  /// +0. Gradients are +0 in rows beyond a sequence's length.
  /// \param grads each given gradient is written
  /// \throws std::invalid_argument as `check_backward`, or if the executor's arena is in use or too
  /// small, before anything is written \throws std::bad_alloc if allocation fails
  template <class D, class E = Serial, class T = typename detail::CallScalar<D>::Type>
  void backward(const CrossInputs<T>& inputs, const D& d_out,
                const CrossGrads<std::type_identity_t<T>>& grads, E&& executor = {}) const {
    constexpr bool is_gradient = detail::TensorOf<D, T> && std::floating_point<T>;
    static_assert(
        is_gradient,
        "fovea: d_out must be a tensor of the scalar type of f1 and f2, float or double: an Eigen "
        "tensor [B, 1, L, C], fovea::channels_view of one of [B, L, C], or a fovea::View");
    if constexpr (is_gradient) {
      const View<const T> from(d_out);
      check_backward<T>(inputs, from, grads);
      run_backward<T>(inputs, from, grads, for_call(executor));
    }
  }

  /// The scratch bytes of `forward` with this many workers. Workers beyond the number of tasks need
  /// none.
  template <class T>
  [[nodiscard]] Index workspace_bytes(Index batch, Index length, Index channels,
                                      Index workers = 1) const;

  /// The scratch bytes of `backward` with this many workers. Workers beyond the number of tasks
  /// need none.
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
