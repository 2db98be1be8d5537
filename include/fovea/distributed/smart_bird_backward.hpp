// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sequence that is spread over ranks: that over
/// the lists of chosen keys.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Checks the keys that were chosen: [B, Hq, own rows, K], keys of the whole sequence or -1.
/// \throws std::invalid_argument
template <class T>
void check_choice(const SmartBirdInputs<T>& in, const SmartBirdSaved<T>& saved, const Rows& rows) {
  const char* const name = SmartBirdAttention::name();
  if (saved.indices.is_none()) {
    refuse_missing(name, "indices",
                   "those that forward saved, since the sequence is distributed over ranks");
  }
  check_indices(name, in.q, View<const Index>(saved.indices), rows.count());
}

}  // namespace detail

/// Computes the gradients of Smart Bird attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse and the chosen keys
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`; std::invalid_argument also if the chosen keys are missing, or no lists of
/// keys
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. The
/// rows that have chosen keys of another rank go there, and the chosen keys come to them.
/// Memory: the rank's rows twice, and what it receives twice.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const SmartBirdAttention& op, const InputsOf<SmartBirdAttention, T>& inputs,
         const Out& out, const SavedOf<SmartBirdAttention, T>& saved, const D& d_out,
         const GradsOf<SmartBirdAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const View<const T> d_from(d_out);
  const char* const name = SmartBirdAttention::name();
  std::string call = detail::call_text(name, ".backward", inputs, rows);
  call.append(", keys ").append(std::to_string(saved.indices.width()));
  return detail::run_call(
      rows, op, call,
      [&] {
        detail::check_call(name, inputs, rows, [&](const SmartBirdInputs<T>& own) {
          SmartBirdSaved<T> lse_alone = saved;
          lse_alone.indices = {};
          op.check_backward(own, from, lse_alone, d_from, grads);
        });
        detail::check_choice(inputs, saved, rows);
      },
      executor,
      [&](auto& /*threads*/) {
        auto listed = with_indices(inputs, View<const Index>(saved.indices));
        listed.key_lengths = {};      // what was chosen is visible
        listed.first_positions = {};  // wherever rows are
        return std::make_unique<IndexedBackwardPass<T>>(
            op.options.scale, listed, from, IndexedSaved<T>{saved.lse}, d_from, grads, rows);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
