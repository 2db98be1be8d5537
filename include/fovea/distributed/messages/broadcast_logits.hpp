// SPDX-License-Identifier: MIT
/// \file
/// Whether a distributed bias or mask has one row for all queries. Ranks determine it together,
/// since a rank that holds a single row cannot tell.
#pragma once

#include <string>

#include "fovea/distributed/messages/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// Which of both have one row for all queries. If no rank holds more than one row, none has.
struct BroadcastLogits {
  bool bias = false;  ///< whether the bias has
  bool mask = false;  ///< whether the mask has

  /// Determines it collectively. \throws std::runtime_error if MPI fails
  template <class In>
  static BroadcastLogits of(const In& in, const Sharding& rows) {
    const auto any_has = [&](const auto& x) {
      const bool has = x.rows() == 1 && rows.own_count() > 1;
      return lowest_rank(rows.ranks(), has) < rows.ranks().size();
    };
    BroadcastLogits all;
    all.bias = any_has(in.bias);
    all.mask = any_has(in.mask);
    return all;
  }

  /// Rejects separate rows on this rank if another has one for all, and the gradient of such a
  /// bias, a sum over the rows of all ranks. \throws std::invalid_argument
  template <class In>
  void check(const char* op, const In& in, bool wants_gradient) const {
    const auto check_rows = [&](const char* tensor, const auto& x, bool has_one_row) {
      if (!has_one_row || x.rows() <= 1) return;
      refuse_extent(op, tensor, x.shape(), 2,
                    "1, the rows of " + std::string(tensor) + " on another rank");
    };
    check_rows("bias", in.bias, bias);
    check_rows("mask", in.mask, mask);
    if (!bias || !wants_gradient) return;
    refuse_given(
        op, "the gradient of bias",
        "bias has one row for all queries, and sums over distributed rows are not computed");
  }
};

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
