// SPDX-License-Identifier: MIT
/// \file
/// Heap memory between guard pages. operator new uses it while a FencedHeap exists (memory.hpp): an
/// access beyond a piece, or to a freed one, is a crash, and the gap between a piece and its guard
/// page is checked when it is freed.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>

#include "support/sanitizers.hpp"

namespace fovea_test {

/// Which end of each piece of memory touches a page that cannot be touched.
enum class Fence { before, behind };

/// While it lives, operator new gives pieces between fences, filled with a byte. \pre only one
/// lives
class FencedHeap {
 public:
  FencedHeap(Fence fence, unsigned char fill);
  FencedHeap(const FencedHeap&) = delete;
  FencedHeap& operator=(const FencedHeap&) = delete;
  ~FencedHeap() { is_on() = false; }

  /// The least alignment of a piece. Clang's UBSan checks it for every result of operator new,
  /// though small objects need less.
#if defined(FOVEA_TEST_UBSAN)
  static constexpr std::size_t kLeastAlignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
#else
  static constexpr std::size_t kLeastAlignment = 1;
#endif

  /// Whether one lives.
  static bool lives() { return is_on(); }
  /// How many pieces there were in all.
  static std::ptrdiff_t pieces() { return count(); }
  /// The number of bytes outside of pieces that were found changed.
  static std::ptrdiff_t changed() { return changes(); }

  /// Memory for a piece. \param alignment a power of two
  static void* allocate(std::size_t size, std::size_t alignment) {
    const std::size_t room = rounded((std::max)(size, std::size_t{1}), alignment);
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t step = (std::max)(alignment, page);
    const std::size_t mapped = rounded(room, step);
    const std::size_t first = rounded(next().fetch_add(mapped + 2 * step) + step, step);
    if (first + mapped + step > region().size()) throw std::bad_alloc();
    std::byte* const base = region().data() + first;
    if (mprotect(base, mapped, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::byte* const data = base + (side() == Fence::behind ? mapped - room : 0);
    std::memset(base, kBeside, mapped);
    std::memset(data, byte(), size);
    piece_at(data) = {base, mapped, size};
    ++count();
    return data;
  }

  /// Whether a piece came from here.
  static bool has(const void* data) {
    return pieces() > 0 && data >= region().data() && data < region().data() + region().size();
  }

  /// Frees the piece; its addresses are not reused. Returns its size.
  static std::size_t release(void* data) {
    const Piece piece = piece_at(data);
    std::byte* const first = static_cast<std::byte*>(data);
    for (std::byte* p = piece.base; p != piece.base + piece.mapped; ++p) {
      const bool is_beside = p < first || p >= first + piece.size;
      if (is_beside && *p != std::byte{kBeside}) ++changes();
    }
    void* const unmapped = mmap(piece.base, piece.mapped, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (unmapped == MAP_FAILED) std::abort();
    return piece.size;
  }

 private:
  static constexpr unsigned char kBeside = 0xa5;
  static constexpr std::size_t kPage = 4096;  // or less than a page
  static constexpr std::size_t kMostReserved = std::size_t{1} << 38;

  struct Piece {
    std::byte* base;
    std::size_t mapped;
    std::size_t size;
  };

  static std::size_t rounded(std::size_t size, std::size_t unit) {
    return (size + unit - 1) / unit * unit;
  }
  /// The address space of all pieces, without memory where there is none: as large as possible,
  /// since valgrind allows less.
  static std::span<std::byte> region() {
    static const std::span<std::byte> all = [] {
      std::size_t size = kMostReserved;
      std::byte* begin = reserved(size, PROT_NONE);
      while (begin == nullptr && size > kLargest) begin = reserved(size /= 2, PROT_NONE);
      if (begin == nullptr) throw std::bad_alloc();
      return std::span(begin, size);
    }();
    return all;
  }
  /// The piece that begins in a page: at most one does.
  static Piece& piece_at(const void* data) {
    static auto* const pieces = reinterpret_cast<Piece*>(
        reserved(region().size() / kPage * sizeof(Piece), PROT_READ | PROT_WRITE));
    if (pieces == nullptr) throw std::bad_alloc();
    const auto place = static_cast<const std::byte*>(data) - region().data();
    return pieces[static_cast<std::size_t>(place) / kPage];
  }
  /// Addresses, or null if there are not that many.
  static std::byte* reserved(std::size_t size, int access) {
    void* const begin =
        mmap(nullptr, size + kLargest, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    return reinterpret_cast<std::byte*>(rounded(reinterpret_cast<std::uintptr_t>(begin), kLargest));
  }
  static constexpr std::size_t kLargest = std::size_t{1} << 21;  // the largest alignment

  static std::atomic<bool>& is_on() {
    static std::atomic<bool> on{false};
    return on;
  }
  static std::atomic<Fence>& side() {
    static std::atomic<Fence> fence{Fence::behind};
    return fence;
  }
  static std::atomic<unsigned char>& byte() {
    static std::atomic<unsigned char> fill{0};
    return fill;
  }
  static std::atomic<std::size_t>& next() {
    static std::atomic<std::size_t> offset{0};
    return offset;
  }
  static std::atomic<std::ptrdiff_t>& count() {
    static std::atomic<std::ptrdiff_t> pieces{0};
    return pieces;
  }
  static std::atomic<std::ptrdiff_t>& changes() {
    static std::atomic<std::ptrdiff_t> bytes{0};
    return bytes;
  }
};

}  // namespace fovea_test
