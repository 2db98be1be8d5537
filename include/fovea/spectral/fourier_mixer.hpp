// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer of FNet (Lee-Thorp et al. 2021, section 3.1; MATHS.md, section 7), computed by
/// FFTW.
#pragma once

#include <concepts>
#include <type_traits>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/fft_planning.hpp"

FOVEA_NAMESPACE_BEGIN

/// Options of FourierMixer.
struct MixerOptions {
  FftPlanning planning = FftPlanning::estimate;  ///< how FFTW chooses plans
};

/// out = Re(F_N (F_D x)), the real part of the transform of each sequence along its rows and along
/// its columns: out[k, c] = sum_{n, d} x[n, d] cos(2 pi (n k / N + d c / D)). There is no division
/// by N or D, and the exponent's sign is minus. The map's matrix is symmetric, so `backward`
/// applies the same map to d_out.
///
/// All rows mix, so there are no key lengths and no causal form. There is no decoder. A NaN or
/// infinity reaches its whole sequence. Errors are small relative to the norm of the sequence, not
/// to each element. Results are bit-identical for all threads, batches and strides, and for all
/// levels with a fused multiply-add; if the program lets FFTW measure (FftPlanning), they may
/// differ between runs.
///
/// Rows n and N - n are transformed as the real and imaginary parts of one sequence of D numbers,
/// whose spectrum B[c] gives s[N - n, c] = (re B[c] + im B[c]) / 2 and s[n, c] the same at D - c.
/// The real transform S of s[., c] gives two columns: out[k, c] = re S + im S and out[k, D - c] =
/// re S - im S. Two columns of s again form one complex sequence. So along the rows it costs half
/// of a two-dimensional real transform, and moves less memory: N / 2 complex transforms of D
/// numbers and D / 4 of N. Memory: `workspace_bytes`, about one sequence. Recently used plans are
/// cached (kCachedPlans). Planning may abort the process: see FftPlan.
class FourierMixer {
 public:
  MixerOptions options;  ///< The options, which may be changed between calls.

  /// A mixer with these options.
  explicit FourierMixer(const MixerOptions& chosen = {}) : options(chosen) {}

  /// The name in error messages.
  static constexpr const char* name() { return "FourierMixer"; }

  /// The largest number of rows or columns: FFTW counts elements in int, and scratch sizes in bytes
  /// fit Index.
  static constexpr Index kMostElements = Index{1} << 28;

  /// Checks the arguments of `forward`.
  /// \throws std::invalid_argument if they are invalid
  template <class T>
  void check(const View<const T>& x, const View<T>& out) const;

  /// Checks the arguments of `backward`. \throws std::invalid_argument as `check`
  template <class T>
  void check_backward(const View<const T>& d_out, const View<T>& d_x) const;

  /// Computes out.
  /// \param x [B, 1, N, D], with any strides \param out [B, 1, N, D] is written
  /// \throws std::invalid_argument as `check`, or if the executor's arena is in use or too small,
  /// before anything is written
  /// \throws std::bad_alloc if allocation fails
  template <class Out, class E = Serial, class T = typename detail::CallScalar<Out>::Type>
  void forward(const View<const std::type_identity_t<T>>& x, Out&& out, E&& executor = {}) const {
    constexpr bool is_output = detail::OutputOf<Out, T> && std::floating_point<T>;
    static_assert(is_output,
                  "fovea: outputs must be non-const tensors of float or double: an Eigen tensor "
                  "[B, 1, N, D], fovea::channels_view of one of [B, N, D], or a fovea::View");
    check<T>(x, out);
    mix<T>(x, out, for_call(executor));
  }

  /// Computes the gradient of the loss with respect to x from that with respect to out.
  /// \param d_out [B, 1, N, D] \param d_x [B, 1, N, D] is written
  /// \throws as `forward`
  template <class D, class E = Serial, class T = typename detail::CallScalar<D>::Type>
  void backward(const View<const std::type_identity_t<T>>& d_out, D&& d_x,
                E&& executor = {}) const {
    constexpr bool is_output = detail::OutputOf<D, T> && std::floating_point<T>;
    static_assert(is_output,
                  "fovea: outputs must be non-const tensors of float or double: an Eigen tensor "
                  "[B, 1, N, D], fovea::channels_view of one of [B, N, D], or a fovea::View");
    check_backward<T>(d_out, d_x);
    mix<T>(d_out, d_x, for_call(executor));
  }

  /// The scratch bytes of `forward` and `backward` with this many workers. Workers beyond the
  /// number of tasks need none.
  template <class T>
  [[nodiscard]] Index workspace_bytes(Index length, Index channels, Index workers = 1) const;

 private:
  /// One call, sequence by sequence.
  template <class T>
  void mix(const View<const T>& x, const View<T>& out, const ExecutorRef& executor) const;
};

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_FFTW)
#include "fovea/spectral/fourier_mixer.inl.hpp"
#endif
