// SPDX-License-Identifier: MIT
/// \file
/// MPI types of rows of a window, by which a message of many rows is one element.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// An MPI type that is freed with the object.
class MpiType {
 public:
  MpiType(const MpiType&) = delete;
  MpiType& operator=(const MpiType&) = delete;
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

  /// Some rows of a window of `batch` sequences of `rows` rows, from the window's begin on.
  static MpiType rows(const Communicator& ranks, const MpiType& row, Index row_bytes,
                      const std::vector<Range>& ranges, Index batch, Index rows) {
    constexpr Index most = (std::numeric_limits<int>::max)();
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (Index b = 0; b < batch; ++b) {
      for (const Range& range : ranges) {
        for (Index n = range.begin; n < range.end; n += most) {
          lengths.push_back(static_cast<int>((std::min)(most, range.end - n)));
          places.push_back(static_cast<MPI_Aint>((b * rows + n) * row_bytes));
        }
      }
    }
    MPI_Datatype type = MPI_DATATYPE_NULL;
    ranks.check(MPI_Type_create_hindexed(static_cast<int>(lengths.size()), lengths.data(),
                                         places.data(), row.get(), &type),
                "MPI_Type_create_hindexed");
    return committed(ranks, type);
  }

  MPI_Datatype get() const { return type_; }

 private:
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
