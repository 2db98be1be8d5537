// SPDX-License-Identifier: MIT
/// \file
/// Products of spectra.
///
/// A sequence of N real numbers x is transformed as the N/2 complex numbers x[2a] + i x[2a + 1],
/// padded to N. No separate pass extracts the transform of x from the result Z. With E and O the
/// spectra of the even and odd elements, Z = E + i O, so that 2 E[k] = Z[k] + conj Z[N - k] and 2 i
/// O[k] = Z[k] - conj Z[N - k] are used where they are needed.
///
/// The results at k, N - k, N/2 - k and N/2 + k depend only on these four places, so everything is
/// done in place.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/spectral/complex.inl.hpp"
#include "fovea/kernels/spectral/cross.hpp"
#endif

/// The places of these four elements, for k = R * place + row.
struct Quad {
  Index here;    // k
  Index beyond;  // N/2 + k
  Index mirror;  // N - k, which descends as k ascends
  Index across;  // N/2 - k, which descends as k ascends
};

/// The quad of the element at `place` of row r.
FOVEA_INLINE Quad quad_at(Index rows, Index columns, Index r, Index place) {
  const Index here = r * columns + place;
  const Index mirror =
      r == 0 ? (place == 0 ? 0 : columns - place) : (rows - r) * columns + columns - 1 - place;
  const Index across = r == 0 ? columns / 2 - place : mirror - columns / 2;
  return {here, here + columns / 2, mirror, across};
}

/// Twice the spectra of the even and odd elements, from Z[k] and Z[N - k].
template <class V>
struct EvenOdd {
  ComplexVec<V> even;
  ComplexVec<V> odd;
};

template <class V>
FOVEA_INLINE EvenOdd<V> even_odd(ComplexVec<V> at, ComplexVec<V> mirrored) {
  const ComplexVec<V> other = conjugate(mirrored);
  return {at + other, times_minus_i(at - other)};
}

/// Twice the even and odd spectra of one sequence at k.
template <class V, class T>
FOVEA_INLINE EvenOdd<V> near_side(const T* z, const Quad& at) {
  return even_odd(load_complex<V, false>(z + 2 * at.here),
                  load_complex<V, true>(z + 2 * at.mirror));
}
/// Twice the even and odd spectra of one sequence at N/2 - k.
template <class V, class T>
FOVEA_INLINE EvenOdd<V> far_side(const T* z, const Quad& at) {
  return even_odd(load_complex<V, true>(z + 2 * at.across),
                  load_complex<V, false>(z + 2 * at.beyond));
}

/// e^{-2 pi i (N/2 - k) / N}, from the root of k.
template <class V>
FOVEA_INLINE ComplexVec<V> root_across(ComplexVec<V> root) {
  return {negative(root.re), root.im};
}

/// Four times the spectrum of C0[2i] + C0[2i + 1]: E1 (E2 + O2) + O1 (E2 + w O2), where w is the
/// root of k.
template <class V>
FOVEA_INLINE ComplexVec<V> cross_of(const EvenOdd<V>& a, const EvenOdd<V>& b, ComplexVec<V> root) {
  return multiply_add(a.even * (b.even + b.odd), a.odd, multiply_add(b.even, root, b.odd));
}

/// Converts the spectrum of y, N real elements, to that whose inverse transform of length N/2 is
/// y[2i] + i y[2i + 1].
template <class T>
struct CrossProduct {
  const CrossProductArgs<T>& a;

  template <class V>
  FOVEA_INLINE void at(const Quad& q, ComplexVec<V> root) const {
    const ComplexVec<V> lower = cross_of(near_side<V>(a.z1, q), near_side<V>(a.z2, q), root);
    const ComplexVec<V> upper =
        conjugate(cross_of(far_side<V>(a.z1, q), far_side<V>(a.z2, q), root_across(root)));
    const V scale = sharded_over<V>(a.scale);
    const ComplexVec<V> even = lower + upper;
    const ComplexVec<V> odd = conjugate(root) * (lower - upper);
    store_complex<false>(a.z1 + 2 * q.here, scaled(even + times_i(odd), scale));
    store_complex<true>(a.z1 + 2 * q.across,
                        scaled(conjugate(even) + times_i(conjugate(odd)), scale));
  }
};

/// The spectrum of the gradient of one tensor, overwriting that of the other tensor. It is computed
/// from dE1 = G conj(E2 + O2) and dO1 = G conj(E2 + w O2), as Z1 from E1 and O1.
template <class T>
struct Correlation {
  const CorrelationArgs<T>& a;

  /// The even and odd spectra of the gradient at k and N - k.
  template <class V>
  FOVEA_INLINE EvenOdd<V> gradient(ComplexVec<V> g, const EvenOdd<V>& other,
                                   ComplexVec<V> root) const {
    return {g * conjugate(other.even + other.odd),
            g * conjugate(multiply_add(other.even, root, other.odd))};
  }

  template <class V>
  FOVEA_INLINE void at(const Quad& q, ComplexVec<V> root) const {
    // g has N/2 complex elements, so its rows have half the length.
    const Index row = q.here / a.columns;
    const Index mirror_row = q.mirror / a.columns;
    const Index back = a.columns / 2;
    const Index across = q.across - mirror_row * a.columns;
    const T* const g_here = a.g + 2 * (q.here - row * back);
    const T* const g_across = a.g + 2 * (mirror_row * back + (across == back ? 0 : across));
    const EvenOdd<V> g = even_odd(load_complex<V, false>(g_here), load_complex<V, true>(g_across));
    const V scale = sharded_over<V>(a.scale);
    const ComplexVec<V> odd = g.odd * root;
    const ComplexVec<V> sum = scaled(g.even + odd, scale);
    const ComplexVec<V> difference = scaled(conjugate(g.even - odd), scale);
    const EvenOdd<V> lower = gradient(sum, near_side<V>(a.z, q), root);
    const EvenOdd<V> upper = gradient(difference, far_side<V>(a.z, q), root_across(root));
    store_complex<false>(a.z + 2 * q.here, lower.even + times_i(lower.odd));
    store_complex<true>(a.z + 2 * q.mirror, conjugate(lower.even) + times_i(conjugate(lower.odd)));
    store_complex<true>(a.z + 2 * q.across, upper.even + times_i(upper.odd));
    store_complex<false>(a.z + 2 * q.beyond, conjugate(upper.even) + times_i(conjugate(upper.odd)));
  }
};

/// Calls f.at(quad, root of k) for the places [first, last) of row r.
template <class T, class F>
FOVEA_INLINE void for_each_place(const SpectrumRoots<T>& roots, Index r, Index first, Index last,
                                 const F& f) {
  const T* const of_row = roots.of_row + 2 * r;
  Index place = first;
  for (; place + kLanes<T> <= last; place += kLanes<T>) {
    ComplexVec<Vec<T>> root = load_complex<Vec<T>, false>(roots.of_place + 2 * place);
    if (r != 0) root = root * ComplexVec<Vec<T>>{set1(of_row[0]), set1(of_row[1])};
    f.at(quad_at(roots.rows, roots.columns, r, place), root);
  }
  for (; place < last; ++place) {
    ComplexVec<One<T>> root = load_complex<One<T>, false>(roots.of_place + 2 * place);
    if (r != 0) root = root * ComplexVec<One<T>>{{of_row[0]}, {of_row[1]}};
    f.at(quad_at(roots.rows, roots.columns, r, place), root);
  }
}

/// Calls f.at(quad, root of k) once for every quad.
template <class T, class F>
FOVEA_INLINE void for_each_quad(const SpectrumRoots<T>& roots, const F& f) {
  // k = 0 is its own mirror, so it is handled separately.
  for_each_place(roots, 0, 0, 1, f);
  for_each_place(roots, 0, 1, roots.columns / 4 + 1, f);
  for (Index r = 1; 2 * r <= roots.rows; ++r) {
    const Index places = 2 * r == roots.rows ? roots.columns / 4 : roots.columns / 2;
    for_each_place(roots, r, 0, places, f);
  }
}

template <class T>
FOVEA_NOINLINE void cross_product(const CrossProductArgs<T>& a) noexcept {
  for_each_quad(a.roots, CrossProduct<T>{a});
}

template <class T>
FOVEA_NOINLINE void correlation(const CorrelationArgs<T>& a) noexcept {
  for_each_quad(a.roots, Correlation<T>{a});
}
