// SPDX-License-Identifier: MIT
/// \file
/// Entries of decoding: one query after N keys, in a cache of the type of the arithmetic or of 16
/// bits.
#pragma once

#include <utility>
#include <vector>

#include "bench/entries/softmax_entry.hpp"
#include "fovea/core/eigen.hpp"

namespace bench {

/// A decoder with the keys and values of some inputs, and its last query.
template <class Of, class T, class S>
struct SoftmaxDecoding {
  SoftmaxDecoding(const Of& subject, const AllInputs<T>& in, const View<T>& out)
      : of(subject),
        call(in, out),
        decoder(of.op.template decoder<S>({.batch = 1,
                                           .query_heads = in.q.heads(),
                                           .key_heads = in.k.heads(),
                                           .width = in.q.width(),
                                           .value_width = in.v.width(),
                                           .reserve = in.k.rows()})) {
    decoder.append(call.inputs.k, call.inputs.v);
  }

  void step(ThreadPool& pool) { decoder.step({call.inputs.q}, call.out, pool); }

  /// For inputs that were rounded to S.
  Error error(Index samples) const {
    call.widen();
    const Stored<T> q(View<const S>(call.inputs.q));
    const Stored<T> k(View<const S>(call.inputs.k));
    const Stored<T> v(View<const S>(call.inputs.v));
    const Stored<T> out(View<const S>(call.out));
    const PlainData<T> data(AllInputs<T>{q.view(), k.view(), v.view()}, of.op);
    return of.error(data, out.view(), samples, rounding_to<S, T>());
  }

  Of of;
  StoredCall<S, T> call;
  decltype(std::declval<typename Of::Op>().template decoder<S>({})) decoder;
};

/// One decoding step. \tparam S as in steps_entry
template <class S = void, class Op>
Entry decode_entry(Names names, const Op& op, std::vector<Family> families) {
  return steps_entry<SoftmaxDecoding, S>(std::move(names), SoftmaxSubject<Op>{{op}},
                                         std::move(families));
}

}  // namespace bench
