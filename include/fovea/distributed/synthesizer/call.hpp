// SPDX-License-Identifier: MIT
/// \file
/// What both distributed passes of the Synthesizer's forms have in common: what a call checks, and
/// its conversion to softmax attention.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "fovea/attention/synthesizer/form.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A form of the Synthesizer.
template <class Op>
concept Synthesizer = std::derived_from<Op, fovea::detail::SynthesizerForm<Op, typename Op::Shape>>;

namespace detail {

/// Checks this rank's arguments.
/// \param check_tensors called with the inputs without key lengths, which are the whole sequence's
///  \throws std::invalid_argument
template <class In, class Check>
void check_synthesizer(const char* op, const In& in, const Sharding& rows,
                       const Check& check_tensors) {
  check_own_rows(op, "v", in.v, rows);
  In own = in;
  own.key_lengths = {};
  check_tensors(own);
  fovea::detail::check_key_lengths(op, in.key_lengths, in.v.batch(), "v", rows.count(),
                                   "the sequence");
}

/// Describes the parts of a call that must be equal on all ranks.
template <class In>
std::string synthesizer_text(const char* op, std::string_view pass, const In& in,
                             const Sharding& rows) {
  using T = typename decltype(in.v)::Scalar;
  std::string text(op);
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes per number");
  in.for_each_tensor([&](const char* name, const auto& x) {
    text.append(", ").append(name).append(" ").append(sizes_text(x));
  });
  return text.append(" (batch, heads, width)").append(numbers_text(in));
}

}  // namespace detail

}  // namespace distributed

FOVEA_NAMESPACE_END
