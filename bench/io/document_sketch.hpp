// SPDX-License-Identifier: MIT
/// \file
/// A sketch for Smart Bird attention that is computed instead of learnt: queries and keys of a few
/// dimensions whose products are nearest to the mean of the heads' logits. Compiled in one source,
/// for float and double: Eigen's solvers and products take seconds. Test:
/// tests/bench/io/document_sketch_test.cpp, against the singular values of the whole matrix.
#pragma once

#include "bench/io/sketch.hpp"

namespace bench {

/// <sketch_q_i, sketch_k_j> / sqrt(d) is the best approximation of rank d (Eckart and Young, 1936)
/// of the mean over the heads h of batch 0 of <q_hi, k_hj> / sqrt(D), less what its row i has in
/// the mean over j: that changes no weight of a softmax, and would take a dimension.
///
/// With heads side by side, the matrix is M = Q K^T / (H sqrt(D)). It is never made: with
/// K^T K = A A^T, where A = V S^(1/2) of the eigenvectors V and eigenvalues S, M^T M has the
/// eigenvectors K V S^(-1/2) w, w those of A^T Q^T Q A. Time O(N (Hk D)^2 + (Hk D)^3), memory
/// O(N Hk D), in double.
template <class T>
Sketch<T> document_sketch(const AllInputs<T>& in, Index width);

}  // namespace bench
