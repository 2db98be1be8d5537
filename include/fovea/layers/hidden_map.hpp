// SPDX-License-Identifier: MIT
/// \file
/// The non-linear maps f1 and f2 of the pooled hidden state cross (FSAT, eq. 1; section 5.4): a
/// fully connected one, or a depth-wise separable convolution, each followed by GELU.
#pragma once

#include "fovea/layers/depthwise_conv.hpp"
#include "fovea/layers/gelu.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// What a HiddenMap computes before the GELU.
enum class HiddenMapKind {
  fully_connected,  ///< a linear map of each token
  convolution,      ///< 5 taps along the sequence in each channel, then a linear map of each token
};

/// Options of HiddenMap.
struct HiddenMapOptions {
  HiddenMapKind kind = HiddenMapKind::fully_connected;  ///< what is computed before the GELU
  std::string name = "map";       ///< the first part of the names of its parameters
  GeluForm gelu = GeluForm::erf;  ///< which GELU
};

/// y = GELU(x W + b), where x is replaced by its convolution if there is one; DepthwiseConv says
/// what key lengths do to that. x is [B, 1, L, In] and y [B, 1, L, Out], with dense rows.
template <class T>
class HiddenMap : public LayerCalls<HiddenMap<T>, T, Tokens<T>> {
 public:
  /// What the GELU and the linear map read, and room for its gradients.
  struct Saved {
    Buffer<T> convolved;    ///< [B, 1, L, In] the convolution of x, if there is one
    Buffer<T> mapped;       ///< [B, 1, L, Out] the input of the GELU
    Buffer<T> d_convolved;  ///< [B, 1, L, In] the gradient of convolved
    Buffer<T> d_mapped;     ///< [B, 1, L, Out] the gradient of mapped
  };

  /// A layer without sizes, which has yet to be assigned to.
  HiddenMap() = default;

  /// \param in, out channels of x and of y
  /// \param initialiser draws the weights
  /// \param options kind and name
  /// \throws std::invalid_argument if a size is below 1
  HiddenMap(Index in, Index out, Initialiser& initialiser, const HiddenMapOptions& options = {})
      : kind_(options.kind), gelu_(options.gelu) {
    if (has_convolution()) {
      convolution_ = DepthwiseConv<T>(in, initialiser, {.name = options.name.c_str()});
    }
    linear_ = Linear<T>(in, out, initialiser,
                        {.initialisation = Initialisation::he, .name = options.name.c_str()});
  }

  /// The number of channels of x.
  Index in() const { return linear_.in(); }
  /// The number of channels of y.
  Index out() const { return linear_.out(); }

  /// Lists the convolution, if there is one, and the linear map.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    if (self.has_convolution()) f(self.convolution_);
    f(self.linear_);
  }

  using LayerCalls<HiddenMap<T>, T, Tokens<T>>::forward;
  /// Computes y, and keeps what `backward` needs.
  /// \throws std::invalid_argument with a message that names tensor, dimension, expected and got
  /// \throws std::bad_alloc if there is no memory for what is kept
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("HiddenMap", tokens.x, in(), y, out());
    check_lengths("HiddenMap", tokens);
    const View<T> mapped = saved.mapped.resize(y.batch(), y.rows(), out());
    View<const T> from = tokens.x;
    if (has_convolution()) {
      const View<T> convolved = saved.convolved.resize(y.batch(), y.rows(), in());
      convolution_.forward(tokens, convolved, executor);
      from = convolved;
    }
    linear_.forward(from, mapped, executor);
    gelu_.forward(mapped, y, executor);
  }

  /// Adds to the gradients of the parameters. If d_x is given, it is written or added to.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}, Into into = Into::write) {
    check_backward("HiddenMap", tokens.x, in(), d_y, out(), d_x);
    check_saved("HiddenMap", saved.mapped.view(), tokens.x);
    const View<T> d_mapped = saved.d_mapped.resize(d_y.batch(), d_y.rows(), out());
    typename Gelu<T>::Saved nothing;
    gelu_.backward(saved.mapped.view(), nothing, d_y, d_mapped, executor);
    typename Linear<T>::Saved linear_saved;
    if (!has_convolution()) {
      linear_.backward(tokens.x, linear_saved, d_mapped, d_x, executor, into);
      return;
    }
    const View<T> d_convolved = saved.d_convolved.resize(d_y.batch(), d_y.rows(), in());
    linear_.backward(saved.convolved.view(), linear_saved, d_mapped, d_convolved, executor);
    typename DepthwiseConv<T>::Saved convolution_saved;
    convolution_.backward(tokens, convolution_saved, d_convolved, d_x, executor, into);
  }

 private:
  bool has_convolution() const { return kind_ == HiddenMapKind::convolution; }

  HiddenMapKind kind_ = HiddenMapKind::fully_connected;
  Gelu<T> gelu_;
  DepthwiseConv<T> convolution_;
  Linear<T> linear_;
};

FOVEA_NAMESPACE_END
