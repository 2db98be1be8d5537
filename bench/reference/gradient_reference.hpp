// SPDX-License-Identifier: MIT
/// \file
/// How far the gradients of q, k, v and beta are from those of the oracles of the tests, in twice
/// the oracles' unit. All rows together would take O(N^2), so the gradient of the output is that of
/// some rows alone (Training::d_out_of_rows), which reaches all keys. Compiled in one source, for
/// float and double.
#pragma once

#include <vector>

#include "bench/reference/row_reference.hpp"
#include "tests/support/oracle/softmax_grad.hpp"

namespace bench {

/// Adds the gradients of one query head and the key head that it reads, [1, 1, N, D].
template <class T>
using AddGradients = fovea::FunctionRef<void(Index head, fovea_test::ExpectedGrads<T>& to)>;

/// Compares the gradients of some key heads, and of the query heads that read them.
template <class T>
Error gradients_error(const AllInputs<T>& in, const AllGrads<T>& grads,
                      const std::vector<Index>& key_heads, const AddGradients<T>& add);

/// Compares the gradients of softmax attention over what `mask` shows, scale 1 / sqrt(D).
/// \param d_out 0 but for sampled_rows of each head
template <class T>
Error softmax_gradient_error(const fovea_test::ReferenceMask& mask, const AllInputs<T>& in,
                             const View<const T>& d_out, const AllGrads<T>& grads, Index samples);

}  // namespace bench
