// SPDX-License-Identifier: MIT
/// \file
/// The types of numbers in files, which all lie there with their lowest byte first.
#pragma once

#include <Eigen/Core>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The type of the elements of a tensor in a file.
enum class Dtype : unsigned char {
  f64,      ///< double
  f32,      ///< float
  f16,      ///< IEEE 754 binary16
  bf16,     ///< the upper half of a float
  i64,      ///< signed integers
  i32,      ///< signed integers
  i16,      ///< signed integers
  i8,       ///< signed integers
  u64,      ///< unsigned integers
  u32,      ///< unsigned integers
  u16,      ///< unsigned integers
  u8,       ///< unsigned integers
  boolean,  ///< one byte, 0 or 1
};

/// What formats of files call a type.
struct DtypeNames {
  Dtype dtype;                   ///< the type
  std::string_view safetensors;  ///< in safetensors, such as "BF16"
  std::string_view npy;          ///< in .npy, such as "<f4"; empty if there is none
  Index width;                   ///< the bytes of an element
};

/// All types.
inline constexpr std::array<DtypeNames, 13> kDtypes = {{{Dtype::f64, "F64", "<f8", 8},
                                                        {Dtype::f32, "F32", "<f4", 4},
                                                        {Dtype::f16, "F16", "<f2", 2},
                                                        {Dtype::bf16, "BF16", "", 2},
                                                        {Dtype::i64, "I64", "<i8", 8},
                                                        {Dtype::i32, "I32", "<i4", 4},
                                                        {Dtype::i16, "I16", "<i2", 2},
                                                        {Dtype::i8, "I8", "|i1", 1},
                                                        {Dtype::u64, "U64", "<u8", 8},
                                                        {Dtype::u32, "U32", "<u4", 4},
                                                        {Dtype::u16, "U16", "<u2", 2},
                                                        {Dtype::u8, "U8", "|u1", 1},
                                                        {Dtype::boolean, "BOOL", "|b1", 1}}};

/// The names and the width of a type.
constexpr const DtypeNames& names_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

/// The type that safetensors call so, if there is one.
constexpr std::optional<Dtype> safetensors_dtype(std::string_view name) {
  for (const DtypeNames& names : kDtypes) {
    if (names.safetensors == name) return names.dtype;
  }
  return {};
}

/// The type that .npy calls so, if there is one.
constexpr std::optional<Dtype> npy_dtype(std::string_view name) {
  for (const DtypeNames& names : kDtypes) {
    if (!name.empty() && names.npy == name) return names.dtype;
  }
  return {};
}

/// The type of a file that keeps every bit of T.
template <class T>
inline constexpr Dtype kDtype = std::same_as<T, double>        ? Dtype::f64
                                : std::same_as<T, float>       ? Dtype::f32
                                : std::same_as<T, Eigen::half> ? Dtype::f16
                                                               : Dtype::bf16;

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "fovea/io needs a little-endian machine: files have their lowest byte first");

/// Converts elements of From, which may lie at any address, in pieces that fit the cache.
template <class From, class To>
void convert_elements(const std::byte* from, Index count, To* to) {
  constexpr Index piece = 1024;
  std::array<From, piece> aligned;
  for (Index first = 0; first < count; first += piece) {
    const Index many = count - first < piece ? count - first : piece;
    std::memcpy(static_cast<void*>(aligned.data()), from + first * Index{sizeof(From)},
                static_cast<std::size_t>(many) * sizeof(From));
    for (Index i = 0; i < many; ++i) {
      to[first + i] = static_cast<To>(aligned[static_cast<std::size_t>(i)]);
    }
  }
}

/// Calls f(x) with an x of the C++ type of these elements.
template <class F>
void with_element_type(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f64:
      return f(double{});
    case Dtype::f32:
      return f(float{});
    case Dtype::f16:
      return f(Eigen::half{});
    case Dtype::bf16:
      return f(Eigen::bfloat16{});
    case Dtype::i64:
      return f(std::int64_t{});
    case Dtype::i32:
      return f(std::int32_t{});
    case Dtype::i16:
      return f(std::int16_t{});
    case Dtype::i8:
      return f(std::int8_t{});
    case Dtype::u64:
      return f(std::uint64_t{});
    case Dtype::u32:
      return f(std::uint32_t{});
    case Dtype::u16:
      return f(std::uint16_t{});
    case Dtype::u8:
    case Dtype::boolean:
      return f(std::uint8_t{});
  }
}

}  // namespace detail

/// Converts elements as they lie in a file.
/// \param from their bytes, at any address \param count how many \param to [count] is written
template <class T>
void from_bytes(Dtype dtype, const std::byte* from, Index count, T* to) {
  detail::with_element_type(dtype, [&](auto element) {
    using From = decltype(element);
    if constexpr (std::same_as<From, T>) {
      if (count > 0) {
        std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(T));
      }
    } else {
      detail::convert_elements<From>(from, count, to);
    }
  });
}

FOVEA_NAMESPACE_END
