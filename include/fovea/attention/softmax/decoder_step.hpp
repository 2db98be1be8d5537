// SPDX-License-Identifier: MIT
/// \file
/// What a step of a softmax decoder is made of: its arguments, and where its keys are.
#pragma once

#include "fovea/attention/softmax/call.hpp"
#include "fovea/attention/softmax/decoder_core.hpp"

FOVEA_NAMESPACE_BEGIN

/// The arguments of one step.
template <class T>
struct SoftmaxDecoderCore<T>::Step {
  const SoftmaxOperatorRef& op;
  const Modifier& modifier;
  const SoftmaxInputs<T>& inputs;
  const View<T>& out;
  const SoftmaxSaved<T>& saved;

  /// The call with these keys and values.
  SoftmaxCall<T> call(const View<const T>& k, const View<const T>& v) const {
    SoftmaxInputs<T> all = inputs;
    all.k = k;
    all.v = v;
    return {all, op.options(), modifier};
  }
};

/// Sets where the keys of a head are, and the positions of its queries.
template <class T>
struct SoftmaxDecoderCore<T>::Place {
  const DecoderCache<T>& cache;
  SequenceShape rows;
  Index first_key;  // first one of the recent keys that the arguments hold
  Index group;      // number of query heads of a key head
  bool in_tiles;

  void operator()(KeySource source, Index b, Index h, HeadArgs<T>& args) const {
    args.first_position = rows.first_position;
    args.key_end = rows.keys;
    args.key_rows.base = first_key;
    args.in_tiles = in_tiles;
    if (source == KeySource::summary) cache.place_summary(b, h / group, args);
  }
  void operator()(Index stage, const SequenceTask& task, HeadArgs<T>& args) const {
    (*this)(cache.scope().sources(task.head)[stage], task.sequence, task.head, args);
  }
};

FOVEA_NAMESPACE_END
