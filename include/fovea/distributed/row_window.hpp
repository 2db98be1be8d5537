// SPDX-License-Identifier: MIT
/// \file
/// A tensor of all rows of a sequence of which a rank holds some: rows have their places, and
/// memory is taken only for those that were written.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "fovea/core/workspace.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Address space for the rows of a sequence. A kernel finds the row at position n where it would be
/// if all rows were there, so that its sums begin and end where they do in one process; pages of
/// rows that nobody has written take no memory, and read as zeros.
class RowWindow {
 public:
  RowWindow() = default;

  /// Address space for `rows` rows of `row_bytes` bytes.
  /// \throws std::bad_alloc if the system does not have so much
  RowWindow(Index rows, Index row_bytes)
      : row_bytes_(row_bytes), bytes_(Workspace::size_of(rows, row_bytes)) {
    if (bytes_ == 0) return;
    void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) FOVEA_THROW(std::bad_alloc());
    data_ = static_cast<std::byte*>(memory);
  }

  RowWindow(RowWindow&& other) noexcept
      : row_bytes_(other.row_bytes_),
        bytes_(std::exchange(other.bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  RowWindow& operator=(RowWindow&& other) noexcept {
    std::swap(row_bytes_, other.row_bytes_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  RowWindow(const RowWindow&) = delete;
  RowWindow& operator=(const RowWindow&) = delete;
  ~RowWindow() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }

  /// The bytes of a row.
  Index row_bytes() const { return row_bytes_; }
  /// The address of a row.
  std::byte* row(Index n) const { return data_ + n * row_bytes_; }

  /// Says that all of these rows will be written: where they fill large pages, these are asked for.
  void expect(const Range& rows) const {
    constexpr auto page = static_cast<std::uintptr_t>(kLargePage);
    const auto begin = (reinterpret_cast<std::uintptr_t>(row(rows.begin)) + page - 1) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(row(rows.end)) / page * page;
    if (begin >= end) return;
#if defined(MADV_HUGEPAGE)
    // A wish: where it fails, pages are small.
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  }

  /// Gives back the memory of rows, which then read as zeros, but for the pages that they share
  /// with other rows.
  void forget(const Range& rows) const {
    const auto page = static_cast<Index>(sysconf(_SC_PAGESIZE));
    const Index begin = (rows.begin * row_bytes_ + page - 1) / page * page;
    const Index end =
        rows.end * row_bytes_ == bytes_ ? bytes_ : rows.end * row_bytes_ / page * page;
    if (begin >= end) return;
    madvise(data_ + begin, static_cast<std::size_t>(end - begin), MADV_DONTNEED);
  }

 private:
  Index row_bytes_ = 0;
  Index bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
