// SPDX-License-Identifier: MIT
/// \file
/// Memory for tensors of all rows of a sequence of which a rank holds some: everything has its
/// place, and pages are taken only for what was written.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "fovea/core/workspace.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Address space of some bytes. Pages that nobody has written take no memory, and read as zeros.
class RowWindow {
 public:
  RowWindow() = default;

  /// Address space for so many bytes.
  /// \throws std::bad_alloc if the system does not have so much
  explicit RowWindow(Index bytes) : bytes_(Workspace::size_of(bytes, 1)) {
    if (bytes_ == 0) return;
    void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) FOVEA_THROW(std::bad_alloc());
    data_ = static_cast<std::byte*>(memory);
  }

  /// Takes over the memory of another one, which then has none.
  RowWindow(RowWindow&& other) noexcept
      : bytes_(std::exchange(other.bytes_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  /// Changes memory with another one.
  RowWindow& operator=(RowWindow&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  RowWindow(const RowWindow&) = delete;
  RowWindow& operator=(const RowWindow&) = delete;
  ~RowWindow() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }

  /// The first byte; null if there is none.
  std::byte* data() const { return data_; }

  /// Says that all of these bytes will be written: where they fill large pages, these are asked
  /// for.
  void expect(const Range& bytes) const {
    constexpr auto page = static_cast<std::uintptr_t>(kLargePage);
    const auto begin = (address(bytes.begin) + page - 1) / page * page;
    const auto end = address(bytes.end) / page * page;
    if (begin >= end) return;
#if defined(MADV_HUGEPAGE)
    // A wish: where it fails, pages are small.
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  }

  /// Gives back the memory of these bytes, which then read as zeros, but for the pages that they
  /// share with others.
  void forget(const Range& bytes) const {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (address(bytes.begin) + page - 1) / page * page;
    const auto end = bytes.end == bytes_ ? (address(bytes_) + page - 1) / page * page
                                         : address(bytes.end) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }

 private:
  std::uintptr_t address(Index byte) const {
    return reinterpret_cast<std::uintptr_t>(data_) + static_cast<std::uintptr_t>(byte);
  }

  Index bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
