// SPDX-License-Identifier: MIT
/// \file
/// The types of numbers in files, all little-endian.
#pragma once

#include <Eigen/Core>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "fovea/core/config.hpp"

FOVEA_NAMESPACE_BEGIN

/// The type of the elements of a tensor in a file.
enum class Dtype : unsigned char {
  f64,          ///< double
  f32,          ///< float
  f16,          ///< IEEE 754 binary16
  bf16,         ///< the upper half of a float
  i64,          ///< signed integers
  i32,          ///< signed integers
  i16,          ///< signed integers
  i8,           ///< signed integers
  u64,          ///< unsigned integers
  u32,          ///< unsigned integers
  u16,          ///< unsigned integers
  u8,           ///< unsigned integers
  boolean,      ///< one byte, 0 or 1
  f8_e4m3,      ///< 4 bits of exponent and 3 of mantissa, without infinities; up to 448
  f8_e5m2,      ///< the upper half of an IEEE 754 binary16
  f8_e4m3fnuz,  ///< as f8_e4m3 with half the values, without -0, whose bits are NaN; up to 240
  f8_e5m2fnuz,  ///< as f8_e5m2 with half the values, without infinities and -0; up to 57344
  f8_e8m0,      ///< powers of 2 from 2^-127 to 2^127
  // The following are not converted (why_not_converted).
  f6_e2m3,  ///< 2 bits of exponent and 3 of mantissa
  f6_e3m2,  ///< 3 bits of exponent and 2 of mantissa
  f4,       ///< 2 bits of exponent and 1 of mantissa
  c64,      ///< complex numbers of two floats
};

/// The names of a type in file formats.
struct DtypeNames {
  Dtype dtype;                   ///< the type
  std::string_view safetensors;  ///< in safetensors, such as "BF16"
  std::string_view npy;          ///< in .npy, such as "<f4"; empty if there is none
  Index bits;                    ///< of an element
};

/// All types.
inline constexpr std::array<DtypeNames, 22> kDtypes = {{{Dtype::f64, "F64", "<f8", 64},
                                                        {Dtype::f32, "F32", "<f4", 32},
                                                        {Dtype::f16, "F16", "<f2", 16},
                                                        {Dtype::bf16, "BF16", "", 16},
                                                        {Dtype::i64, "I64", "<i8", 64},
                                                        {Dtype::i32, "I32", "<i4", 32},
                                                        {Dtype::i16, "I16", "<i2", 16},
                                                        {Dtype::i8, "I8", "|i1", 8},
                                                        {Dtype::u64, "U64", "<u8", 64},
                                                        {Dtype::u32, "U32", "<u4", 32},
                                                        {Dtype::u16, "U16", "<u2", 16},
                                                        {Dtype::u8, "U8", "|u1", 8},
                                                        {Dtype::boolean, "BOOL", "|b1", 8},
                                                        {Dtype::f8_e4m3, "F8_E4M3", "", 8},
                                                        {Dtype::f8_e5m2, "F8_E5M2", "", 8},
                                                        {Dtype::f8_e4m3fnuz, "F8_E4M3FNUZ", "", 8},
                                                        {Dtype::f8_e5m2fnuz, "F8_E5M2FNUZ", "", 8},
                                                        {Dtype::f8_e8m0, "F8_E8M0", "", 8},
                                                        {Dtype::f6_e2m3, "F6_E2M3", "", 6},
                                                        {Dtype::f6_e3m2, "F6_E3M2", "", 6},
                                                        {Dtype::f4, "F4", "", 4},
                                                        {Dtype::c64, "C64", "", 64}}};

/// The names and the width of a type.
constexpr const DtypeNames& names_of(Dtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)];
}

/// Whether elements of a type are converted to those of C++.
constexpr bool is_converted(Dtype dtype) { return dtype < Dtype::f6_e2m3; }

/// The reason why elements of a type are not converted.
inline std::string why_not_converted(Dtype dtype) {
  return "its type is " + std::string(names_of(dtype).safetensors) +
         (dtype == Dtype::c64 ? ": complex numbers are not converted"
                              : ": elements of less than a byte are not converted, since the "
                                "format does not define how they are packed");
}

/// The type with this name in safetensors, if any.
constexpr std::optional<Dtype> safetensors_dtype(std::string_view name) {
  for (const DtypeNames& names : kDtypes) {
    if (names.safetensors == name) return names.dtype;
  }
  return {};
}

/// The type with this name in .npy, if any.
constexpr std::optional<Dtype> npy_dtype(std::string_view name) {
  for (const DtypeNames& names : kDtypes) {
    if (!name.empty() && names.npy == name) return names.dtype;
  }
  return {};
}

/// The file type that represents T exactly.
template <class T>
inline constexpr Dtype kDtype = std::same_as<T, double>        ? Dtype::f64
                                : std::same_as<T, float>       ? Dtype::f32
                                : std::same_as<T, Eigen::half> ? Dtype::f16
                                                               : Dtype::bf16;

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "fovea/io needs a little-endian machine: files have their lowest byte first");

/// Converts elements of From, possibly unaligned, in pieces that fit the cache.
template <class From, class To>
void convert_elements(const std::byte* from, Index count, To* to) {
  using Wide = std::conditional_t<std::is_class_v<From>, float, From>;  // widening is exact
  constexpr Index piece = 1024;
  std::array<From, piece> aligned;
  for (Index first = 0; first < count; first += piece) {
    const Index many = count - first < piece ? count - first : piece;
    std::memcpy(static_cast<void*>(aligned.data()), from + first * Index{sizeof(From)},
                static_cast<std::size_t>(many) * sizeof(From));
    for (Index i = 0; i < many; ++i) {
      to[first + i] = static_cast<To>(static_cast<Wide>(aligned[static_cast<std::size_t>(i)]));
    }
  }
}

/// Elements of 8 bits: sign, exponent and mantissa, without infinities. \tparam HasNegativeZero
/// whether the bits of -0 are -0, and the largest of both signs NaN; otherwise those of -0 are NaN
template <std::uint32_t MantissaBits, std::uint32_t Bias, bool HasNegativeZero>
struct Float8 {
  std::uint8_t bits;

  explicit operator float() const {
    constexpr auto power_of_2 = [](std::uint32_t exponent) {  // 2^(exponent - 127)
      return std::bit_cast<float>(exponent << 23);
    };
    const std::uint32_t rest = bits & 0x7FU;
    if (HasNegativeZero ? rest == 0x7F : bits == 0x80) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    const float magnitude =
        rest >> MantissaBits == 0
            ? static_cast<float>(rest) * power_of_2(128 - Bias - MantissaBits)
            : std::bit_cast<float>((rest << (23 - MantissaBits)) + ((127 - Bias) << 23));
    return bits > 0x7F ? -magnitude : magnitude;
  }
};

/// The upper half of a binary16.
struct UpperHalf {
  std::uint8_t bits;

  explicit operator float() const {
    return static_cast<float>(std::bit_cast<Eigen::half>(static_cast<std::uint16_t>(bits << 8)));
  }
};

/// The exponent of a float, which has no sign and no other bits; 255 is NaN.
struct Exponent8 {
  std::uint8_t bits;

  explicit operator float() const {
    if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
    return bits == 0 ? 0x1p-127F : std::bit_cast<float>(std::uint32_t{bits} << 23);
  }
};

/// A placeholder for an element that is not converted.
struct NoElement {};

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
    case Dtype::f8_e4m3:
      return f(Float8<3, 7, true>{});
    case Dtype::f8_e5m2:
      return f(UpperHalf{});
    case Dtype::f8_e4m3fnuz:
      return f(Float8<3, 8, false>{});
    case Dtype::f8_e5m2fnuz:
      return f(Float8<2, 16, false>{});
    case Dtype::f8_e8m0:
      return f(Exponent8{});
    case Dtype::f6_e2m3:
    case Dtype::f6_e3m2:
    case Dtype::f4:
    case Dtype::c64:
      return f(NoElement{});
  }
}

}  // namespace detail

/// Converts elements of a file.
/// \param from their bytes, of any alignment \param count their number \param to [count] is written
/// \throws std::runtime_error if elements of this type are not converted
template <class T>
void from_bytes(Dtype dtype, const std::byte* from, Index count, T* to) {
  detail::with_element_type(dtype, [&](auto element) {
    using From = decltype(element);
    if constexpr (std::same_as<From, detail::NoElement>) {
      FOVEA_THROW(std::runtime_error(why_not_converted(dtype)));
    } else if constexpr (std::same_as<From, T>) {
      if (count > 0) {
        std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(T));
      }
    } else {
      detail::convert_elements<From>(from, count, to);
    }
  });
}

FOVEA_NAMESPACE_END
