// SPDX-License-Identifier: MIT
/// \file
/// Rows of a window that travel one behind the other.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/row_set.hpp"
#include "fovea/distributed/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Memory for some rows of all heads of all tensors of a window, without gaps: by tensors, heads
/// and rows.
class PackedRows {
 public:
  /// Takes the memory. \param rows ascending, disjoint   \throws std::bad_alloc
  PackedRows(const std::vector<RowsInWindow>& places, std::vector<Range> rows)
      : places_(places), rows_(std::move(rows)), memory_(row_count(rows_), bytes_of_row(places)) {}

  /// The bytes of one row in all heads of all tensors.
  static Index bytes_of_row(const std::vector<RowsInWindow>& places) {
    Index bytes = 0;
    for (const RowsInWindow& place : places) bytes += place.heads * place.row_bytes;
    return bytes;
  }

  /// The packed rows.
  std::byte* data() { return memory_.data<std::byte>(); }

  /// Copies the rows from a window. \param window its first byte
  void pack(const std::byte* window) {
    std::byte* to = data();
    for_each_piece([&](Index first, std::size_t size) {
      std::memcpy(to, window + first, size);
      to += size;
    });
  }

  /// Copies the rows to a window. \param window its first byte
  void unpack(std::byte* window) const {
    const auto* from = memory_.data<std::byte>();
    for_each_piece([&](Index first, std::size_t size) {
      std::memcpy(window + first, from, size);
      from += size;
    });
  }

 private:
  template <class F>
  void for_each_piece(const F& f) const {
    for (const RowsInWindow& place : places_) {
      for (Index head = 0; head < place.heads; ++head) {
        for (const Range& range : rows_) {
          const Range bytes = place.bytes(head, range);
          if (!bytes.is_empty()) f(bytes.begin, static_cast<std::size_t>(bytes.end - bytes.begin));
        }
      }
    }
  }

  std::vector<RowsInWindow> places_;
  std::vector<Range> rows_;
  Workspace memory_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
