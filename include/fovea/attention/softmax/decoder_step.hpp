// SPDX-License-Identifier: MIT
/// \file
/// A softmax decoder's step: its arguments, and where its keys are.
#pragma once

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

/// The arguments of one step.
template <class T>
struct SoftmaxDecoderCore<T>::Step {
  const SoftmaxOperatorRef& op;    ///< the operator
  const Modifier& modifier;        ///< its modifier of the logits
  const SoftmaxInputs<T>& inputs;  ///< as in a decoder's `step`
  const View<T>& out;              ///< written
  const SoftmaxSaved<T>& saved;    ///< written if it has a tensor

  /// The call with these keys and values.
  SoftmaxCall<T> call(const View<const T>& k, const View<const T>& v) const {
    SoftmaxInputs<T> all = inputs;
    all.k = k;
    all.v = v;
    return {all, op.options(), modifier};
  }
};

/// Sets a head's keys, and the positions of its queries.
template <class T>
struct SoftmaxDecoderCore<T>::Place {
  const DecoderCache<T>& cache;  ///< where they are
  SequenceShape rows;            ///< the queries of the step
  Index first_key;               ///< the first recent key in the arguments
  Index group;                   ///< the number of query heads of a key head
  bool in_tiles;                 ///< as in SoftmaxBlockArgs

  /// Changes the arguments of a head for one source of keys.
  void operator()(KeySource source, Index b, Index h, HeadArgs<T>& args) const {
    args.first_position = rows.first_position;
    args.key_end = rows.keys;
    args.key_rows.base = first_key;
    args.in_tiles = in_tiles;
    if (source == KeySource::summary) cache.place_summary(b, h / group, args);
  }
  /// Changes them for one pass of a pattern.
  void operator()(Index pass, const SequenceTask& task, HeadArgs<T>& args) const {
    (*this)(cache.scope().sources(task.head)[pass], task.sequence, task.head, args);
  }
};

FOVEA_NAMESPACE_END
