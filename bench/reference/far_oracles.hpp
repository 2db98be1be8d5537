// SPDX-License-Identifier: MIT
/// \file
/// An operator with a far field, head by head, as the oracles of the tests take it.
#pragma once

#include "bench/entries/all_inputs.hpp"
#include "bench/reference/far_model.hpp"
#include "bench/reference/row_reference.hpp"
#include "tests/support/oracle/fmm.hpp"

namespace bench {

/// \tparam T of the results that are judged
template <class T>
fovea_test::OracleMap<T> oracle_map(FarMap map) {
  if (map == FarMap::tanh_plus_one) return fovea_test::tanh_plus_one<T>();
  return fovea_test::elu_plus_one<T>(map == FarMap::elu_plus_one ? 1 : -1);
}

/// One query head and the key head that it reads: a problem for the oracles.
template <class T>
AllInputs<T> one_head(const AllInputs<T>& in, Index head) {
  const auto one = [](const View<const T>& x, Index h) {
    if (x.empty()) return x;
    return View<const T>(&x(0, h, 0, 0), {1, 1, x.rows(), x.width()}, x.strides());
  };
  const Index key_head = head / (in.q.heads() / in.k.heads());
  AllInputs<T> made{one(in.q, head), one(in.k, key_head), one(in.v, key_head)};
  made.beta = one(in.beta, key_head);
  return made;
}

/// Rows of the near field for the oracles.
template <class T>
fovea_test::OracleOperator<T> band_of(const fovea::LocalAttention& near_field, Index width) {
  const auto sees = [band = near_field.options](const fovea_test::Pair& p) {
    return p.j >= p.i() - band.left && p.j <= p.i() + band.right;
  };
  return fovea_test::OracleOperator<T>::of({}, sees, width);
}

}  // namespace bench
