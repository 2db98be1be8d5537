// SPDX-License-Identifier: MIT
/// \file
/// The non-linear maps f1 and f2 of the pooled hidden state cross (FSAT, eq. 1; section 5.4): one
/// or two fully connected maps, or a depthwise separable convolution, each with an element-wise
/// function.
#pragma once

#include "fovea/layers/activation_function.hpp"
#include "fovea/layers/depthwise_conv.hpp"
#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// What a HiddenMap computes.
enum class HiddenMapKind {
  fully_connected,      ///< a linear map of each token
  convolution,          ///< 5 taps along the sequence in each channel, then a linear map
  two_fully_connected,  ///< two linear maps of each token, with a function between them
};

/// Options of HiddenMap.
struct HiddenMapOptions {
  HiddenMapKind kind = HiddenMapKind::fully_connected;     ///< what is computed before the function
  std::string name = "map";                                ///< the prefix of its parameters' names
  ActivationKind activation = ActivationKind::gelu;        ///< the final function
  ActivationKind inner_activation = ActivationKind::gelu;  ///< between two linear maps
  Index hidden = 0;  ///< channels between two linear maps; if 0, those of y
};

namespace detail {

/// y = f(x W + b). W uses He initialisation, unless f is odd.
template <class T>
class DenseMap : public LayerParts<DenseMap<T>> {
 public:
  struct Saved {
    Buffer<T> mapped;    // [B, 1, L, Out] the input of f
    Buffer<T> d_mapped;  // [B, 1, L, Out] its gradient
  };

  DenseMap() = default;
  DenseMap(Index in, Index out, ActivationKind activation, const std::string& name,
           Initialiser& initialiser)
      : function_(activation),
        linear_(in, out, initialiser,
                {.initialisation = initialisation_for(activation), .name = name.c_str()}) {}

  Index in() const { return linear_.in(); }
  Index out() const { return linear_.out(); }

  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.linear_);
  }

  template <class E>
  void forward(const View<const T>& x, const View<T>& y, Saved& saved, E&& executor) const {
    const View<T> mapped = saved.mapped.resize(x.batch(), x.rows(), out());
    linear_.forward(x, mapped, executor);
    function_.forward(mapped, y, executor);
  }

  template <class E>
  void backward(const View<const T>& x, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor, OutputMode into) {
    const View<T> d_mapped = saved.d_mapped.resize(x.batch(), x.rows(), out());
    typename ActivationFunction<T>::Saved of_function;
    function_.backward(saved.mapped.view(), of_function, d_y, d_mapped, executor);
    typename Linear<T>::Saved of_linear;
    linear_.backward(x, of_linear, d_mapped, d_x, executor, into);
  }

 private:
  static Initialisation initialisation_for(ActivationKind kind) {
    const bool is_odd = kind == ActivationKind::tanh || kind == ActivationKind::identity;
    return is_odd ? Initialisation::glorot : Initialisation::he;
  }

  ActivationFunction<T> function_;
  Linear<T> linear_;
};

}  // namespace detail

/// y = f(z W + b), where z is x, its convolution, or g(x V + c), for x [B, 1, L, In] and y [B, 1,
/// L, Out] with dense rows; key lengths affect a convolution as in DepthwiseConv. The parameters
/// are "map.weight" and "map.bias", with a convolution also "map.taps"; those of two maps begin
/// with "map.in" and "map.out".
template <class T>
class HiddenMap : public LayerCalls<HiddenMap<T>, T, Tokens<T>> {
 public:
  /// State saved for backward, and buffers for gradients.
  struct Saved {
    typename detail::DenseMap<T>::Saved first;  ///< the first of two linear maps'
    typename detail::DenseMap<T>::Saved last;   ///< the last (or only) one's
    Buffer<T> inner;                            ///< [B, 1, L, width of z] z, if it is not x
    Buffer<T> d_inner;                          ///< its gradient
  };

  /// An empty layer; assign one before use.
  HiddenMap() = default;

  /// \param in, out channels of x and of y
  /// \param initialiser draws the weights
  /// \param options kind, functions and name
  /// \throws std::invalid_argument if a size is below 1
  HiddenMap(Index in, Index out, Initialiser& initialiser, const HiddenMapOptions& options = {})
      : kind_(options.kind), in_(in) {
    if (options.hidden != 0) check_size("HiddenMap", "hidden", options.hidden);
    if (has_convolution()) {
      convolution_ = DepthwiseConv<T>(in, initialiser, {.name = options.name.c_str()});
    }
    const Index hidden = !has_first() ? in : options.hidden == 0 ? out : options.hidden;
    if (has_first()) {
      first_ = {in, hidden, options.inner_activation, options.name + ".in", initialiser};
    }
    last_ = {hidden, out, options.activation, options.name + (has_first() ? ".out" : ""),
             initialiser};
  }

  /// The number of channels of x.
  Index in() const { return in_; }
  /// The number of channels of y.
  Index out() const { return last_.out(); }

  /// Lists the convolution or the first of two maps, if there is one, and the last map.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    if (self.has_convolution()) f(self.convolution_);
    if (self.has_first()) f(self.first_);
    f(self.last_);
  }

  using LayerCalls<HiddenMap<T>, T, Tokens<T>>::forward;
  /// Computes y, and saves what `backward` needs.
  /// \throws std::invalid_argument if a shape or layout is wrong
  /// \throws std::bad_alloc if allocation fails
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& saved, E&& executor = {}) const {
    check_forward("HiddenMap", tokens.x, in(), y, out());
    check_lengths("HiddenMap", tokens, detail::rows_of_sequence(tokens.x, executor));
    if (is_single()) return last_.forward(tokens.x, y, saved.last, executor);
    const View<T> inner = saved.inner.resize(y.batch(), y.rows(), last_.in());
    if (has_convolution()) {
      convolution_.forward(tokens, inner, executor);
    } else {
      first_.forward(tokens.x, inner, saved.first, executor);
    }
    last_.forward(inner, y, saved.last, executor);
  }

  /// Adds to the gradients of the parameters. If given, d_x is written or added to.
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& saved, const View<const T>& d_y, const View<T>& d_x,
                E&& executor = {}, OutputMode into = OutputMode::write) {
    check_backward("HiddenMap", tokens.x, in(), d_y, out(), d_x);
    check_saved("HiddenMap", saved.last.mapped.view(), tokens.x, out());
    if (is_single()) return last_.backward(tokens.x, saved.last, d_y, d_x, executor, into);
    const View<T> d_inner = saved.d_inner.resize(d_y.batch(), d_y.rows(), last_.in());
    last_.backward(saved.inner.view(), saved.last, d_y, d_inner, executor, OutputMode::write);
    if (has_convolution()) {
      typename DepthwiseConv<T>::Saved nothing;
      convolution_.backward(tokens, nothing, d_inner, d_x, executor, into);
    } else {
      first_.backward(tokens.x, saved.first, d_inner, d_x, executor, into);
    }
  }

 private:
  bool has_convolution() const { return kind_ == HiddenMapKind::convolution; }
  bool has_first() const { return kind_ == HiddenMapKind::two_fully_connected; }
  bool is_single() const { return kind_ == HiddenMapKind::fully_connected; }

  HiddenMapKind kind_ = HiddenMapKind::fully_connected;
  Index in_ = 0;
  DepthwiseConv<T> convolution_;
  detail::DenseMap<T> first_;
  detail::DenseMap<T> last_;
};

FOVEA_NAMESPACE_END
