// SPDX-License-Identifier: MIT
/// \file
/// FNet token mixing (Lee-Thorp et al. 2021, section 3.1), in place of attention. Requires FFTW.
#pragma once

#include "fovea/layers/attend.hpp"
#include "fovea/layers/layer_calls.hpp"
#include "fovea/spectral/fourier_mixer.hpp"

FOVEA_NAMESPACE_BEGIN

/// y = Re(F_L (F_Dm x)) by FourierMixer, for x and y [B, 1, L, Dm] with dense rows; outputs have no
/// negative stride. It has no parameters. An `EncoderBlock` of it without `norm_first` is a block of
/// FNet.
template <class T = float>
class FourierMixerLayer : public LayerCalls<FourierMixerLayer<T>, T, Tokens<T>> {
 public:
  FourierMixer mixer;  ///< The operator, whose options may be changed.

  /// Empty: the map is linear.
  struct Saved {};

  /// An empty layer; assign one before use.
  FourierMixerLayer() = default;

  /// \param width channels Dm of x and y
  /// \throws std::invalid_argument if width is below 1
  explicit FourierMixerLayer(Index width, const MixerOptions& options = {})
      : mixer(options), width_(width) {
    check_size(name(), "the width of x", width);
  }

  /// The name in error messages.
  static constexpr const char* name() { return "FourierMixerLayer"; }
  /// The number of channels of x and y.
  Index width() const { return width_; }

  /// Lists no parts.
  template <class Self, class F>
  static void each_part(Self& /*self*/, F&& /*f*/) {}

  using LayerCalls<FourierMixerLayer, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong, or if there are key lengths,
  /// packed sequences, a bias or a mask, since all tokens are mixed \throws std::bad_alloc as
  /// FourierMixer
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_tokens(tokens);
    check_forward(name(), tokens.x, width_, y, width_);
    detail::check_written_layout(name(), "y", y);
    detail::forward_over(mixer, as_executor(executor), tokens.x, y);
  }

  /// Writes d_x, if given.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check_tokens(tokens);
    check_backward(name(), tokens.x, width_, d_y, width_, d_x);
    detail::check_written_layout(name(), "d_x", d_x);
    if (!d_x.empty()) detail::backward_over(mixer, as_executor(executor), d_y, d_x);
  }

 private:
  static void check_tokens(const Tokens<T>& tokens) {
    constexpr const char* reason = "every token is mixed with every other one";
    if (!tokens.key_lengths.empty()) refuse_given(name(), "key_lengths", reason);
    if (!tokens.cu_seqlens.empty()) refuse_given(name(), "cu_seqlens", reason);
    check_no_terms(name(), tokens, reason);
  }

  Index width_ = 0;
};

FOVEA_NAMESPACE_END
