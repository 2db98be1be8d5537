// SPDX-License-Identifier: MIT
/// \file
/// MPI types of a given byte size, so that the count of a large message fits an int.
#pragma once

#include <utility>

#include "fovea/distributed/communicator.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// An MPI type that is freed with the object.
class MpiType {
 public:
  MpiType(const MpiType&) = delete;
  MpiType& operator=(const MpiType&) = delete;
  /// Moves the type; the source is empty.
  MpiType(MpiType&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
  MpiType& operator=(MpiType&&) = delete;
  ~MpiType() {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
  }

  /// One row of a window.
  static MpiType row(const Communicator& ranks, Index bytes) {
    // A row beyond 2^31 bytes is split into pieces.
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

  /// The MPI handle.
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
