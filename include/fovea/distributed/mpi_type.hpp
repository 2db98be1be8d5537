// SPDX-License-Identifier: MIT
/// \file
/// MPI types of rows of a window, by which a message of many rows is one element.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// An MPI type that is freed with the object.
class MpiType {
 public:
  MpiType(const MpiType&) = delete;
  MpiType& operator=(const MpiType&) = delete;
  /// Takes over the type of another one, which then has none.
  MpiType(MpiType&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  MpiType& operator=(MpiType&&) = delete;
  ~MpiType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }

  /// One row of a window.
  static MpiType row(const Communicator& ranks, Index bytes) {
    // A row beyond 2^31 bytes is made of pieces.
    constexpr Index most = Index{1} << 30;
    if (bytes <= most) {
      MPI_Datatype type = MPI_DATATYPE_NULL;
      ranks.check(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &type),
                  "MPI_Type_contiguous");
      return committed(ranks, type);
    }
    Index piece = most;
    while (bytes % piece != 0) --piece;
    const MpiType pieces = row(ranks, piece);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_contiguous(static_cast<int>(bytes / piece), pieces.get(), &type),
                "MPI_Type_contiguous");
    return committed(ranks, type);
  }

  /// Some rows of all heads of all tensors of a window, from the window's begin on.
  static MpiType rows(const Communicator& ranks, const std::vector<RowsInWindow>& places,
                      const std::vector<Range>& ranges) {
    std::vector<MpiType> parts;
    for (const RowsInWindow& place : places) parts.push_back(rows(ranks, place, ranges));
    std::vector<MPI_Datatype> types;
    for (const MpiType& part : parts) types.push_back(part.get());
    const std::vector<int> once(parts.size(), 1);
    const std::vector<MPI_Aint> at_begin(parts.size(), 0);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_create_struct(static_cast<int>(parts.size()), once.data(), at_begin.data(),
                                       types.data(), &type),
                "MPI_Type_create_struct");
    return committed(ranks, type);
  }

  /// The type as MPI knows it.
  MPI_Datatype get() const { return type_; }

 private:
  static MpiType rows(const Communicator& ranks, const RowsInWindow& place,
                      const std::vector<Range>& ranges) {
    constexpr Index most = (std::numeric_limits<int>::max)();
    const MpiType row = MpiType::row(ranks, place.row_bytes);
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (Index head = 0; head < place.heads; ++head) {
      for (const Range& range : ranges) {
        for (Index n = range.begin; n < range.end; n += most) {
          lengths.push_back(static_cast<int>((std::min)(most, range.end - n)));
          places.push_back(static_cast<MPI_Aint>(place.bytes(head, {n, range.end}).begin));
        }
      }
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                         places.data(), row.get(), &type),
                "MPI_Type_create_hindexed");
    return committed(ranks, type);
  }

  explicit MpiType(MPI_Datatype type) : type_(type) {}

  static MpiType committed(const Communicator& ranks, MPI_Datatype type) {
    MpiType made(type);
    ranks.check(MPI_Type_commit(&made.type_), "MPI_Type_commit");
    return made;
  }

  MPI_Datatype type_;
};

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
