// SPDX-License-Identifier: MIT
/// \file
/// Dropout of activations (Srivastava et al. 2014), with draws that depend only on the training
/// step and the position.
#pragma once

#include "fovea/layers/elementwise.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// y = x in evaluation. In training, elements of x [B, 1, L, C] are set to 0 with probability p,
/// and the others divided by 1 - p. It has no parameters.
///
/// Element (b, n, c) is dropped if `open_unit_float(words[c % 4])` is below p, where words are
/// those of Philox4x32-10 for the counter (b, n, c / 4, 0) and the key `dropout_seed(step, place)`.
/// So float and double drop the same elements.
template <class T>
class DropoutLayer : public LayerCalls<DropoutLayer<T>, T, Tokens<T>> {
 public:
  /// Empty: backward draws again.
  struct Saved {};

  /// A layer that drops nothing.
  DropoutLayer() = default;
  /// \param probability that an element is dropped, in [0, 1)
  /// \param place makes its draws differ from those of other places in the same layer
  /// \throws std::invalid_argument if the probability is out of range
  explicit DropoutLayer(double probability, DropoutPlace place = DropoutPlace::own)
      : probability_(probability), place_(place) {
    if (!(probability >= 0 && probability < 1)) {
      refuse("DropoutLayer", "probability", to_string(probability), "at least 0 and less than 1");
    }
  }

  /// The probability that an element is dropped.
  double probability() const { return probability_; }
  /// Whether it drops elements for this step, if any.
  bool drops(const std::optional<TrainingStep>& training) const {
    return training && probability_ > 0;
  }

  using LayerCalls<DropoutLayer<T>, T, Tokens<T>>::forward;
  /// Computes y.
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void forward(const Tokens<T>& tokens, const View<T>& y, Saved& /*saved*/,
               E&& executor = {}) const {
    check_forward("DropoutLayer", tokens.x, tokens.x.width(), y, tokens.x.width());
    write(tokens.training, tokens.x, y, as_executor(executor));
  }

  /// Writes d_x. \param tokens those of the forward pass, with the same step
  /// \throws as `forward`
  template <class E = Serial>
  void backward(const Tokens<T>& tokens, Saved& /*saved*/, const View<const T>& d_y,
                const View<T>& d_x, E&& executor = {}) {
    check_backward("DropoutLayer", tokens.x, tokens.x.width(), d_y, tokens.x.width(), d_x);
    if (!d_x.empty()) write(tokens.training, d_y, d_x, as_executor(executor));
  }

  /// The forward pass in place. It costs nothing if nothing is dropped.
  /// \param x [B, 1, L, C] with dense rows
  /// \throws std::invalid_argument if x has another layout
  template <class E>
  void drop(const std::optional<TrainingStep>& training, const View<T>& x, E&& executor) const {
    check_activations("DropoutLayer", "x", x, x.width());
    detail::check_distinct("DropoutLayer", "x", x);
    if (drops(training)) write(training, x, x, executor);
  }

  /// The gradient of x, given that of y: d_y itself if nothing is dropped.
  /// \param d_y [B, 1, L, C] with dense rows \param scratch holds the result otherwise
  /// \throws std::invalid_argument if d_y has another layout; std::bad_alloc
  template <class E>
  View<const T> gradient(const std::optional<TrainingStep>& training, const View<const T>& d_y,
                         Buffer<T>& scratch, E&& executor) const {
    check_activations("DropoutLayer", "d_y", d_y, d_y.width());
    if (!drops(training)) return d_y;
    const View<T> d_x = scratch.resize(d_y.shape());
    write(training, d_y, d_x, executor);
    return d_x;
  }

 private:
  /// Cost of one element, in multiply-adds.
  static constexpr double kProducts = 32;

  template <class E>
  void write(const std::optional<TrainingStep>& training, const View<const T>& x, const View<T>& y,
             E&& executor) const {
    if (!drops(training)) return detail::copy_activations<T>(x, y, executor);
    static_cast<void>(detail::rows_of_sequence(x, executor));
    const std::uint64_t seed = dropout_seed(*training, place_);
    detail::add_to_collective_check(executor, "DropoutLayer", probability_, seed);
    detail::for_each_row_block(
        executor, x.batch(), x.rows(), kProducts * static_cast<double>(x.width()),
        [&](Index b, Index first, Index count) {
          for (Index n = first; n < first + count; ++n) {
            write_row(seed, b, detail::row_of_sequence(executor, n), detail::row_at(x, b, n),
                      detail::row_at(y, b, n), x.width());
          }
        });
  }

  void write_row(std::uint64_t seed, Index b, Index n, const T* x, T* y, Index width) const {
    const T factor = static_cast<T>(1 / (1 - probability_));
    for (Index c = 0; c < width; c += 4) {
      const auto words =
          philox4x32_10({static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(n),
                         static_cast<std::uint32_t>(c / 4), 0},
                        {detail::low_half(seed), detail::high_half(seed)});
      for (Index i = 0; i < (std::min<Index>)(4, width - c); ++i) {
        const double draw{open_unit_float(words[static_cast<std::size_t>(i)])};
        y[c + i] = draw < probability_ ? T{0} : x[c + i] * factor;
      }
    }
  }

  double probability_ = 0;
  DropoutPlace place_ = DropoutPlace::own;
};

FOVEA_NAMESPACE_END
