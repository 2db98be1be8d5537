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

/// A tensor of S with the elements of another one, row-major.
template <class S>
struct Stored {
  template <class T>
  explicit Stored(const View<const T>& x)
      : shape(x.shape()), data(static_cast<std::size_t>(x.size())) {
    Index i = 0;
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index n = 0; n < shape[2]; ++n) {
        for (Index d = 0; d < shape[3]; ++d) {
          data[static_cast<std::size_t>(i++)] = static_cast<S>(x(0, h, n, d));
        }
      }
    }
  }

  View<S> view() { return View<S>(data.data(), shape); }
  View<const S> view() const { return View<const S>(data.data(), shape); }

  Shape shape;
  std::vector<S> data;
};

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
  constexpr double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  const Stored<T> q(View<const S>(Stored<S>(in.q).view()));
  const Stored<T> k(View<const S>(Stored<S>(in.k).view()));
  const Stored<T> v(View<const S>(Stored<S>(in.v).view()));
  const AllInputs<T> rounded{q.view(), k.view(), v.view()};
  const bool rounds = !std::is_same_v<S, T>;
  const double half_ulp = rounds ? std::ldexp(1.0, -std::numeric_limits<S>::digits) : 0;
  const double least = rounds ? static_cast<double>(std::numeric_limits<S>::denorm_min()) / 2 : 0;
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    const RowReference<T> want = truth(rounded, head, 0);
    for (std::size_t c = 0; c < want.out.size(); ++c) {
      const auto expected = static_cast<double>(want.out[c]);
      const auto got = static_cast<double>(out(0, head, 0, static_cast<Index>(c)));
      const double rounding = 1.01 * std::max(half_ulp * std::abs(expected), least);
      error.add(std::max(0.0, std::abs(got - expected) - rounding),
                u * static_cast<double>(want.unit[c]));
    }
  }
  return error;
}

/// One decoding step. \tparam S of the tensors where the arithmetic is in float; void: that of the
/// arithmetic
template <class S = void, class Op>
Entry decode_entry(Names names, const Op& op, std::vector<Family> families) {
  names.pass = Pass::decode;
  const auto runner = [&]<class T>(T) {
    const auto prepare = [op](const AllInputs<T>& in, const View<T>& out) {
      using Of = std::conditional_t<std::is_void_v<S>, T, S>;
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
              [op](const AttentionShape& shape) { return visible_pairs(op, shape); },
              runner(float{}),
              {},
              std::move(families)};
  if constexpr (std::is_void_v<S>) entry.f64 = double_runner(runner);
  return entry;
}

}  // namespace bench
