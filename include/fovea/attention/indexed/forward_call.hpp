// SPDX-License-Identifier: MIT
/// \file
/// The common part of the forward passes over lists of keys.
#pragma once

#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/call/sequences.hpp"

FOVEA_NAMESPACE_BEGIN

/// The tensors of one forward pass over lists of keys.
/// \tparam Lists like TensorLists
template <class T, class Lists>
struct IndexedForwardCall {
  /// As in IndexedForward.
  IndexedForwardCall(const IndexedInputs<T>& given, const Lists& given_lists, const View<T>& output,
                     const IndexedSaved<T>& kept)
      : inputs(given),
        lists(given_lists),
        out(output),
        saved(kept),
        sequences(given, given_lists.alignment()) {}

  IndexedInputs<T> inputs;  ///< the inputs
  Lists lists;              ///< the lists of all heads
  View<T> out;              ///< the output
  IndexedSaved<T> saved;    ///< the saved results
  Sequences<T> sequences;   ///< the sequences
};

FOVEA_NAMESPACE_END
