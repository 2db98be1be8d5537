// SPDX-License-Identifier: MIT
/// \file
/// The iteration of Nystroem attention towards the Moore-Penrose inverse of a small matrix, and its
/// derivative (Xiong et al. 2021, eq. 11):
///
///     Z <- Z / 4 (13 I - A Z (15 I - A Z (7 I - A Z)))
#pragma once

#include <algorithm>
#include <cmath>

#include "fovea/core/rounded.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// The iteration for matrices [m, m], all of them dense and row-major. An iteration costs 8 m^3
/// flops, its derivative 30 m^3.
template <class T>
class PseudoInverse {
 public:
  /// \param size m   \param steps number of steps
  PseudoInverse(Index size, Index steps) : size_(size), steps_(steps) {}

  /// Elements of scratch of `run`.
  Index scratch_elements() const { return padded_size(4 * area()); }
  /// Elements of scratch of `differentiate`.
  Index backward_scratch_elements() const { return padded_size((steps_ + 12) * area()); }

  /// The largest column sum of A, and the first column that has it. Rows of A sum to 1, so this is
  /// |A|_1 |A|_inf. A NaN is larger than any number.
  struct Norm {
    T value = 0;       ///< the sum
    Index column = 0;  ///< the column

    /// Replaces this one by another if that is larger.
    bool take(const Norm& other) {
      if (!(other.value > value) && !(std::isnan(other.value) && !std::isnan(value))) return false;
      *this = other;
      return true;
    }
  };
  /// The norm of a matrix. \param a [m, m]
  Norm norm(const T* a) const {
    Norm norm;
    for (Index j = 0; j < size_; ++j) {
      T sum = 0;
      for (Index i = 0; i < size_; ++i) sum += a[i * size_ + j];
      norm.take({sum, j});
    }
    return norm;
  }

  /// Z from Z0 = A^T / norm.
  /// \param scratch scratch_elements() elements   \return Z, in the scratch
  const T* run(const T* a, T norm, T* scratch) const {
    T* z = scratch;
    T* next = z + area();
    begin(a, norm, z);
    for (Index n = 0; n < steps_; ++n) {
      step(a, z, next, next + area(), next + 2 * area());
      std::swap_ranges(z, z + area(), next);
    }
    return z;
  }

  /// Z, and memory for its gradient.
  struct Chain {
    const T* z;  ///< Z
    T* d_z;      ///< [m, m] the gradient of Z, which the caller writes
  };
  /// Computes Z again and keeps every step.
  /// \param scratch backward_scratch_elements() elements
  Chain keep(const T* a, T norm, T* scratch) const {
    begin(a, norm, scratch);
    T* const room = scratch + (steps_ + 1) * area();
    for (Index n = 0; n < steps_; ++n) {
      T* const z = scratch + n * area();
      step(a, z, z + area(), room, room + area());
    }
    return {scratch + steps_ * area(), room};
  }

  /// Writes the gradient of A without the part through `norm`, and returns the gradient of norm.
  /// \param scratch as `keep` left it, with d_z
  T differentiate(const T* a, T norm, T* scratch, T* d_a) const {
    std::fill_n(d_a, area(), T{0});
    T* const d_z = scratch + (steps_ + 1) * area();
    for (Index n = steps_; n-- > 0;) step_back(a, scratch + n * area(), d_z, d_a);
    T sum = 0;
    for (Index i = 0; i < size_; ++i) {
      T of_row = 0;
      for (Index j = 0; j < size_; ++j) {
        const T d_first = d_z[j * size_ + i] / norm;
        d_a[i * size_ + j] += d_first;
        of_row += rounded(d_first * a[i * size_ + j]);
      }
      sum += of_row;
    }
    return -sum / norm;
  }

 private:
  enum class Turned { no, yes };

  Index area() const { return size_ * size_; }

  Matrix<const T> matrix(const T* x, Turned turned) const {
    return turned == Turned::no ? Matrix<const T>{x, size_, 1} : Matrix<const T>{x, 1, size_};
  }
  /// to = a b, or to += a b, of either matrix or its transpose.
  void multiply(const T* a, Turned turned_a, const T* b, Turned turned_b, T* to,
                bool add = false) const {
    ProductKernels<T>{}.multiply({.a = matrix(a, turned_a),
                                  .b = stored(matrix(b, turned_b)),
                                  .to = to,
                                  .to_row = size_,
                                  .rows = size_,
                                  .columns = size_,
                                  .steps = size_,
                                  .add = add});
  }
  void multiply(const T* a, const T* b, T* to) const { multiply(a, Turned::no, b, Turned::no, to); }

  /// to = c I - x; they may be the same.
  void subtract_from(T c, const T* x, T* to) const {
    for (Index i = 0; i < area(); ++i) to[i] = -x[i];
    for (Index i = 0; i < size_; ++i) to[i * size_ + i] += c;
  }
  void quarter(T* x) const {
    for (Index i = 0; i < area(); ++i) x[i] /= 4;
  }

  void begin(const T* a, T norm, T* z) const {
    for (Index i = 0; i < size_; ++i) {
      for (Index j = 0; j < size_; ++j) z[j * size_ + i] = a[i * size_ + j] / norm;
    }
  }

  /// P = A Z, Q = 7 I - P, R = 15 I - P Q and S = 13 I - P R, which may be in place of Q.
  void factors(const T* a, const T* z, T* p, T* q, T* r, T* s) const {
    multiply(a, z, p);
    subtract_from(7, p, q);
    multiply(p, q, r);
    subtract_from(15, r, r);
    multiply(p, r, s);
    subtract_from(13, s, s);
  }
  /// next = Z / 4 S. \param p, other scratch
  void step(const T* a, const T* z, T* next, T* p, T* other) const {
    factors(a, z, p, other, next, other);
    multiply(z, other, next);
    quarter(next);
  }

  /// The gradient of one iteration: computes the gradient of Z from that of the next Z, and adds to
  /// d_a.
  /// \param d_z [11, m, m] the gradient, then scratch
  void step_back(const T* a, const T* z, T* d_z, T* d_a) const {
    const auto at = [&](Index n) { return d_z + n * area(); };
    T* const p = at(1);
    T* const q = at(2);
    T* const r = at(3);
    T* const s = at(4);
    T* const d_s = at(5);
    T* const minus_d_r = at(6);
    T* const d_q = at(7);
    T* const d_p = at(8);
    T* const of_s = at(9);
    factors(a, z, p, q, r, s);
    quarter(d_z);
    multiply(z, Turned::yes, d_z, Turned::no, d_s);
    multiply(p, Turned::yes, d_s, Turned::no, minus_d_r);
    multiply(p, Turned::yes, minus_d_r, Turned::no, d_q);
    multiply(minus_d_r, Turned::no, q, Turned::yes, d_p);
    multiply(d_s, Turned::no, r, Turned::yes, of_s);
    for (Index i = 0; i < area(); ++i) d_p[i] -= of_s[i] + d_q[i];
    multiply(d_p, Turned::no, z, Turned::yes, d_a, true);
    T* const d_before = at(10);
    multiply(d_z, Turned::no, s, Turned::yes, d_before);
    multiply(a, Turned::yes, d_p, Turned::no, d_before, true);
    std::copy_n(d_before, area(), d_z);
  }

  Index size_;
  Index steps_;
};

FOVEA_NAMESPACE_END
