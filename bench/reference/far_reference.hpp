// SPDX-License-Identifier: MIT
/// \file
/// How far some rows of the operators with a far field are from the oracles, in time linear in N
/// for each. Compiled in one source, for float and double.
#pragma once

#include "bench/entries/all_inputs.hpp"
#include "bench/measure/row.hpp"
#include "bench/reference/far_model.hpp"

namespace bench {

/// Compares `samples` rows of each head (of batch 0) of `out` with the truth.
/// \param tokens that k, v and beta hold, which come over and over if there are fewer: those of a
/// decoder   \param rounding of `out`, which is no error
template <class T>
Error far_error(const FarModel& model, const AllInputs<T>& in, Index tokens,
                const fovea::View<const T>& out, Index samples, const Rounding& rounding = {});

/// Compares the gradients of k, v and beta of the first and the last key head, and of q of all
/// heads that read them. \param d_out 0 but for sampled_rows of each head   \pre Nq = Nk
template <class T>
Error far_gradient_error(const FarModel& model, const AllInputs<T>& in,
                         const fovea::View<const T>& d_out, const AllGrads<T>& grads,
                         Index samples);

}  // namespace bench
