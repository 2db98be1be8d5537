// SPDX-License-Identifier: MIT
/// \file
/// Entries of decoding: one query after N keys, in a cache of the type of the arithmetic or of 16
/// bits.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/entries/softmax_entry.hpp"
#include "fovea/core/eigen.hpp"

namespace bench {

/// A decoder with the keys and values of some inputs, and its last query. \tparam S of the tensors
template <class Op, class S>
struct Decoding {
  template <class T>
  Decoding(const Op& op, const AllInputs<T>& in, const View<const T>& out_like)
      : decoder(op.template decoder<S>({.batch = 1,
                                        .query_heads = in.q.heads(),
                                        .key_heads = in.k.heads(),
                                        .width = in.q.width(),
                                        .value_width = in.v.width(),
                                        .reserve = in.k.rows()})),
        q(in.q),
        out(out_like) {
    decoder.append(Stored<S>(in.k).view(), Stored<S>(in.v).view());
  }

  decltype(std::declval<Op>().template decoder<S>({})) decoder;
  Stored<S> q;
  Stored<S> out;
};

/// Compares out, of S, with the truth for inputs that were rounded to S. Rounding out to S is no
/// error.
template <class S, class T, class Reference>
Error stored_error(const AllInputs<T>& in, const View<const S>& out, const Reference& truth) {
  const Stored<T> q(View<const S>(Stored<S>(in.q).view()));
  const Stored<T> k(View<const S>(Stored<S>(in.k).view()));
  const Stored<T> v(View<const S>(Stored<S>(in.v).view()));
  const Stored<T> got(out);
  return sampled_error<T>(AllInputs<T>{q.view(), k.view(), v.view()}, got.view(), 1, truth,
                          rounding_to<S, T>());
}

/// One decoding step. \tparam S of the tensors where the arithmetic is in float; void: that of the
/// arithmetic
template <class S = void, class Op>
Entry decode_entry(Names names, const Op& op, std::vector<Family> families) {
  names.pass = Pass::decode;
  const auto runner = [&]<class T, class Of = std::conditional_t<std::is_void_v<S>, T, S>>(
      T, Of = Of{}) {
    const auto prepare = [op](const AllInputs<T>& in, const View<T>& out) {
      const auto work = std::make_shared<Decoding<Op, Of>>(op, in, View<const T>(out));
      return Prepared{
          [=](ThreadPool& pool) { work->decoder.step({work->q.view()}, work->out.view(), pool); },
          [=](Index) {
            return stored_error<Of, T>(in, std::as_const(work->out).view(), softmax_reference(op));
          },
          [=] { return work->decoder.memory_bytes(); }};
    };
    return Runner<T>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  Entry entry{std::move(names),
              [op](const AttentionShape& shape) { return attended_pairs(op, shape); },
              runner(float{}),
              {},
              std::move(families)};
  if constexpr (std::is_void_v<S>) {
    entry.f64 = double_runner(runner);
    add_stored_runners(entry, runner);
  }
  return entry;
}

}  // namespace bench
