// SPDX-License-Identifier: MIT
/// \file
/// The blend of the near and the far field, and the gradients of its logits (FMMformer, eq. 12;
/// MATHS.md, section 4).
#pragma once

#include <cmath>
#include <vector>

#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/rounded.hpp"

FOVEA_NAMESPACE_BEGIN

/// The blend out = a1 near + a2 far, for each query head and column. The weights are w =
/// sigmoid(logit), or 1 without a logit. Then a = w, or, if rows are normalised, a = w / (w1 +
/// terms w2).
template <class T>
class FmmBlend {
 public:
  /// \param inputs its logits are read when needed, so they must outlive this object
  /// \param terms the sum of the weights of a far-field row: the number of its terms, if they are
  /// summed
  /// \param share the factor of the sum of the terms that gives the far field
  /// \param normalise_rows whether to divide by w1 + terms w2
  FmmBlend(const LinearFamilyInputs<T>& inputs, double terms, double share, bool normalise_rows)
      : near_logits_(inputs.near_logits),
        far_logits_(inputs.far_logits),
        heads_(inputs.q.heads()),
        value_width_(inputs.v.width()),
        terms_(terms),
        share_(share),
        normalise_(normalise_rows) {}

  /// The weights a1 and a2 of all heads and columns; empty if all are 1.
  FarWeights<Compute<T>> weights() const {
    if (near_logits_.empty() && far_logits_.empty() && !normalise_ && share_ == 1) return {};
    FarWeights<Compute<T>> made(heads_, value_width_);
    for (Index h = 0; h < heads_; ++h) {
      for (Index c = 0; c < value_width_; ++c) {
        const auto [w1, w2] = at(h, c);
        const double sum = normaliser(h, c);
        made.near_field(h)[c] = static_cast<Compute<T>>(w1 / sum);
        made.far_field(h)[c] = static_cast<Compute<T>>(w2 / sum * share_);
      }
    }
    return made;
  }

  /// The weights w1 and w2 of a head and column.
  std::pair<double, double> at(Index h, Index c) const {
    return {sigmoid(near_logits_, h, c), sigmoid(far_logits_, h, c)};
  }

  /// The factor of the sum of the terms.
  double share() const { return share_; }

  /// The number that both weights are divided by.
  double normaliser(Index h, Index c) const {
    if (!normalise_) return 1;
    const auto [w1, w2] = at(h, c);
    return w1 + rounded(terms_ * w2);
  }

  /// Whether the far field's weights are the same for all columns.
  bool is_same_for_columns() const {
    return !has_columns(near_logits_) && !has_columns(far_logits_);
  }

  /// Writes the gradients of the logits.
  /// \param near_field [Hq, Dv]: w1 times the sum over batch and rows of d_out near
  /// \param far_field [Hq, Dv]: w2 times the sum over batch and rows of d_out far; if all columns
  /// have the same weights, the sum over the columns may be in any of them
  void write_gradients(const std::vector<double>& near_field, const std::vector<double>& far_field,
                       const LinearFamilyGrads<T>& grads) const {
    write(grads.near_logits, near_logits_,
          [&](Index h, Index c) { return products_of(h, c, near_field, far_field).first; });
    write(grads.far_logits, far_logits_,
          [&](Index h, Index c) { return products_of(h, c, near_field, far_field).second; });
  }

 private:
  using Logits = View<const Compute<T>>;

  static bool has_columns(const Logits& x) { return !x.empty() && x.width() > 1; }

  /// The element of head h and column c of a tensor that may be broadcast.
  template <class U>
  static U& element(const View<U>& x, Index h, Index c) {
    return x(0, x.heads() == 1 ? 0 : h, 0, x.width() == 1 ? 0 : c);
  }

  static double sigmoid(const Logits& x, Index h, Index c) {
    return x.empty() ? 1 : 1 / (1 + std::exp(-static_cast<double>(element(x, h, c))));
  }

  /// The derivatives of the loss by w1 and by w2, multiplied by w1 and w2.
  std::pair<double, double> products_of(Index h, Index c, const std::vector<double>& near_field,
                                        const std::vector<double>& far_field) const {
    const auto n = static_cast<std::size_t>(h * value_width_ + c);
    if (!normalise_) return {near_field[n], far_field[n]};
    const auto [w1, w2] = at(h, c);
    const double sum = normaliser(h, c);
    const double of_near =
        (rounded(near_field[n] * terms_ * w2) - rounded(far_field[n] * w1)) / (sum * sum);
    return {of_near, -of_near};
  }

  /// Writes the gradient of the logits x from w times the derivative by w, summed where x was
  /// broadcast.
  template <class Product>
  void write(const View<T>& gradient, const Logits& x, const Product& product) const {
    if (gradient.empty()) return;
    for (Index xh = 0; xh < x.heads(); ++xh) {
      for (Index xc = 0; xc < x.width(); ++xc) {
        const Index last_head = x.heads() == 1 ? heads_ : xh + 1;
        const Index last_column = x.width() == 1 ? value_width_ : xc + 1;
        double sum = 0;
        for (Index h = xh; h < last_head; ++h) {
          for (Index c = xc; c < last_column; ++c) sum += product(h, c);
        }
        const double rest = 1 / (1 + std::exp(static_cast<double>(x(0, xh, 0, xc))));  // 1 - w
        gradient(0, xh, 0, xc) = static_cast<T>(sum * rest);
      }
    }
  }

  Logits near_logits_;
  Logits far_logits_;
  Index heads_;
  Index value_width_;
  double terms_;
  double share_;
  bool normalise_;
};

FOVEA_NAMESPACE_END
