// SPDX-License-Identifier: MIT
#include "support/memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "support/fences.hpp"

namespace fovea_test {

HeapCount& heap() {
  static HeapCount count;
  return count;
}

FailingHeap::FailingHeap(std::ptrdiff_t nth, bool forever) {
  is_forever() = forever;
  left() = nth;
}

FencedHeap::FencedHeap(Fence fence, unsigned char fill) {
  side() = fence;
  byte() = fill;
  is_on() = true;
}

namespace {

// The size is stored before each piece, with the piece's alignment. Neither function is inlined: a
// compiler that sees free() with operator new reports a mismatch.
[[gnu::noinline]] void* allocate(std::size_t size, std::size_t alignment) {
  if (FailingHeap::strikes()) throw std::bad_alloc();
  if (FencedHeap::lives()) {
    // Without more alignment than the size implies: otherwise an access to a float after the last
    // one would be missed.
    const std::size_t natural = size & (~size + 1);
    const std::size_t least =
        std::clamp(natural, FencedHeap::kLeastAlignment, alignof(std::max_align_t));
    void* const data = FencedHeap::allocate(size, alignment == 1 ? least : alignment);
    heap().add(size);
    return data;
  }
  if (alignment < alignof(std::max_align_t)) alignment = alignof(std::max_align_t);
  const std::size_t total = (size + 2 * alignment - 1) / alignment * alignment;
  auto* const base = static_cast<std::byte*>(std::aligned_alloc(alignment, total));
  if (base == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(base) = size;
  heap().add(size);
  return base + alignment;
}

void* allocate_or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return allocate(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

[[gnu::noinline]] void release(void* data, std::size_t alignment) {
  if (data == nullptr) return;
  if (FencedHeap::has(data)) {
    heap().bytes -= static_cast<std::ptrdiff_t>(FencedHeap::release(data));
    return;
  }
  if (alignment < alignof(std::max_align_t)) alignment = alignof(std::max_align_t);
  std::byte* const base = static_cast<std::byte*>(data) - alignment;
  heap().bytes -= static_cast<std::ptrdiff_t>(*reinterpret_cast<std::size_t*>(base));
  std::free(base);
}

}  // namespace

}  // namespace fovea_test

// All forms are replaced: those of a library that watches memory itself do not call one another.
void* operator new(std::size_t size) { return fovea_test::allocate(size, 1); }
void* operator new[](std::size_t size) { return fovea_test::allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return fovea_test::allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return fovea_test::allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return fovea_test::allocate_or_null(size, 1);
}
void* operator new[](std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return fovea_test::allocate_or_null(size, 1);
}
void operator delete(void* data) noexcept { fovea_test::release(data, 1); }
void operator delete[](void* data) noexcept { fovea_test::release(data, 1); }
void operator delete(void* data, std::size_t) noexcept { fovea_test::release(data, 1); }
void operator delete[](void* data, std::size_t) noexcept { fovea_test::release(data, 1); }
void operator delete(void* data, const std::nothrow_t& /*tag*/) noexcept {
  fovea_test::release(data, 1);
}
void operator delete[](void* data, const std::nothrow_t& /*tag*/) noexcept {
  fovea_test::release(data, 1);
}
void operator delete(void* data, std::align_val_t alignment) noexcept {
  fovea_test::release(data, static_cast<std::size_t>(alignment));
}
void operator delete[](void* data, std::align_val_t alignment) noexcept {
  fovea_test::release(data, static_cast<std::size_t>(alignment));
}
void operator delete(void* data, std::size_t, std::align_val_t alignment) noexcept {
  fovea_test::release(data, static_cast<std::size_t>(alignment));
}
void operator delete[](void* data, std::size_t, std::align_val_t alignment) noexcept {
  fovea_test::release(data, static_cast<std::size_t>(alignment));
}
