// SPDX-License-Identifier: MIT
/// \file
/// Sparse memory for tensors of all rows of a sequence, of which a rank holds some: every row has
/// an address, but only written pages are allocated.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Reserved address space. Unwritten pages take no memory, and read as zeros.
class RowWindow {
 public:
  RowWindow() = default;

  /// Reserves `bytes` bytes of address space.
  /// \throws std::bad_alloc if the system refuses
  explicit RowWindow(Index bytes) : bytes_(Workspace::size_of(bytes, 1)) {
    if (bytes_ == 0) return;
    void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) FOVEA_THROW(std::bad_alloc());
    data_ = static_cast<std::byte*>(memory);
  }

  /// Reuses a window's memory if it has the same size: its pages stay allocated and keep their
  /// contents. Otherwise that memory is freed and new memory reserved.
  /// \param home receives the memory when this window is destroyed; must outlive it
  /// \throws as the constructor of a new one
  RowWindow(Index bytes, RowWindow& home) {
    if (home.bytes_ != bytes) {
      RowWindow().swap(home);
      RowWindow(bytes).swap(*this);
    } else {
      swap(home);
    }
    home_ = &home;
  }

  /// Moves the memory; the source is empty.
  RowWindow(RowWindow&& other) noexcept { swap(other); }
  /// Swaps memory with the other window.
  RowWindow& operator=(RowWindow&& other) noexcept {
    swap(other);
    return *this;
  }
  RowWindow(const RowWindow&) = delete;
  RowWindow& operator=(const RowWindow&) = delete;
  ~RowWindow() {
    if (RowWindow* const home = std::exchange(home_, nullptr)) swap(*home);
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  }

  /// The first byte; null if empty.
  std::byte* data() const { return data_; }
  /// The size in bytes.
  Index size_bytes() const { return bytes_; }

  /// Requests large pages. \param bytes of whole pages
  void take_large_pages([[maybe_unused]] const Range& bytes) const {
#if defined(MADV_HUGEPAGE)
    // A hint: on failure, pages are small.
    madvise(data_ + bytes.begin, static_cast<std::size_t>(bytes.end - bytes.begin), MADV_HUGEPAGE);
#endif
  }

  /// Releases the memory of these bytes, which then read as zeros, except for pages shared with
  /// other bytes.
  void forget(const Range& bytes) const {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (address(bytes.begin) + page - 1) / page * page;
    const auto end = bytes.end == bytes_ ? (address(bytes_) + page - 1) / page * page
                                         : address(bytes.end) / page * page;
    if (begin < end) madvise(data_ + (begin - address(0)), end - begin, MADV_DONTNEED);
  }

 private:
  void swap(RowWindow& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    std::swap(home_, other.home_);
  }
  std::uintptr_t address(Index byte) const {
    return reinterpret_cast<std::uintptr_t>(data_) + static_cast<std::uintptr_t>(byte);
  }

  Index bytes_ = 0;
  std::byte* data_ = nullptr;
  RowWindow* home_ = nullptr;  // receives the memory; if null, it is freed
};

/// Finds the large pages of a window that will mostly be written.
class LargePages {
 public:
  /// \param window outlives this object
  explicit LargePages(const RowWindow& window) : window_(window) {}

  /// Announces that all of these bytes will be written. \param bytes after those of earlier calls
  void add(const Range& bytes) {
    for (Index at = bytes.begin; at < bytes.end;) {
      const Index page = first_byte_of_page(at);
      if (page != page_) end_page();
      page_ = page;
      const Index end = (std::min)(bytes.end, page + kBytes);
      written_ += end - at;
      at = end;
    }
  }

  /// The bytes of large pages inside the window of which three quarters are written.
  const std::vector<Range>& found() {
    end_page();
    return found_;
  }

 private:
  static constexpr Index kBytes{kLargePage};

  /// The first byte of a byte's large page; may be before the window.
  Index first_byte_of_page(Index byte) const {
    const auto address = reinterpret_cast<std::uintptr_t>(window_.data() + byte);
    return byte - static_cast<Index>(address % kLargePage);
  }

  void end_page() {
    const Range page{page_, page_ + kBytes};
    const bool is_inside = page.begin >= 0 && page.end <= window_.size_bytes();
    const bool is_written = written_ >= kBytes / 4 * 3;
    written_ = 0;
    if (!is_inside || !is_written) return;
    if (found_.empty() || found_.back().end != page.begin)
      found_.push_back({page.begin, page.begin});
    found_.back().end = page.end;
  }

  const RowWindow& window_;
  Index page_ = -1;    // the begin of the page being filled
  Index written_ = 0;  // its bytes that will be written
  std::vector<Range> found_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
