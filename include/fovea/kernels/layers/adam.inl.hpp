// SPDX-License-Identifier: MIT
/// \file
/// The optimiser Adam (Kingma and Ba 2015, algorithm 1).

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/layers/columns.inl.hpp"
#include "fovea/kernels/layers/layers.hpp"
#endif

/// Moves weights, and their moments, by one step.
template <class T>
void adam_step(const AdamArgs<T>& p) {
  for_each_vector<T>(p.count, [&](Index i, auto lanes) {
    const Vec<T> g = set1(p.share) * lanes.read(p.gradient + i);
    const Vec<T> mean = fma(set1(p.beta1), lanes.read(p.mean + i), set1(p.rest1) * g);
    const Vec<T> square = fma(set1(p.beta2), lanes.read(p.square + i), set1(p.rest2) * g * g);
    const Vec<T> root = square_root(set1(p.unbias2) * square) + set1(p.epsilon);
    const Vec<T> minus_move = set1(-p.rate) * mean / root;
    lanes.write(p.mean + i, mean);
    lanes.write(p.square + i, square);
    lanes.write(p.weights + i, fma(set1(p.kept), lanes.read(p.weights + i), minus_move));
  });
}

/// Returns the sum of the squares of x[0, count), in double.
template <class T>
double sum_of_squares(const T* x, Index count) {
  double sum[1];
  row_sums<1>(count, sum, [&](Index i, auto lanes, auto add) {
    const Vec<double> a = lanes.wide(x + i);
    add(0, a * a);
  });
  return sum[0];
}
