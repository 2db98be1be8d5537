// SPDX-License-Identifier: MIT
/// \file
/// Pictures of 16 colours as PNG files (ISO/IEC 15948), two pixels to a byte, not compressed.
#pragma once

#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace drawing {

/// Colours 0xRRGGBB.
using Palette = std::array<std::uint32_t, 16>;

/// Pixels are numbers of the palette's colours, rows from the top.
class Pixels {
 public:
  Pixels(std::size_t columns, std::size_t rows, std::uint8_t colour)
      : columns_(columns), rows_(rows), colours_(columns * rows, colour) {}

  std::size_t columns() const { return columns_; }
  std::size_t rows() const { return rows_; }
  std::uint8_t& at(std::size_t row, std::size_t column) {
    return colours_[row * columns_ + column];
  }
  std::uint8_t at(std::size_t row, std::size_t column) const {
    return colours_[row * columns_ + column];
  }

 private:
  std::size_t columns_;
  std::size_t rows_;
  std::vector<std::uint8_t> colours_;
};

namespace detail {

inline void put_big_endian(std::string& to, std::uint32_t x) {
  for (const int shift : {24, 16, 8, 0}) to += static_cast<char>(x >> shift & 0xff);
}

/// The checksum of a chunk (polynomial 0xedb88320, reflected).
inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

/// The checksum of the contents of a zlib stream (RFC 1950).
inline std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

inline void put_chunk(std::string& to, std::string_view name, std::string_view content) {
  put_big_endian(to, static_cast<std::uint32_t>(content.size()));
  const std::size_t begin = to.size();
  to.append(name).append(content);
  put_big_endian(to, crc32(std::string_view(to).substr(begin)));
}

/// A zlib stream of stored blocks (RFC 1951, section 3.2.4).
inline std::string stored(std::string_view bytes) {
  constexpr std::size_t most = 0xffff;
  std::string out = "\x78\x01";
  for (std::size_t first = 0; first == 0 || first < bytes.size(); first += most) {
    const std::string_view block = bytes.substr(first, most);
    out += first + most < bytes.size() ? '\0' : '\1';
    const auto size = static_cast<unsigned>(block.size());
    for (const unsigned x : {size, ~size}) {
      out += static_cast<char>(x & 0xff);
      out += static_cast<char>(x >> 8 & 0xff);
    }
    out += block;
  }
  put_big_endian(out, adler32(bytes));
  return out;
}

}  // namespace detail

/// The bytes of the file.
inline std::string png(const Pixels& pixels, const Palette& palette) {
  std::string header;
  detail::put_big_endian(header, static_cast<std::uint32_t>(pixels.columns()));
  detail::put_big_endian(header, static_cast<std::uint32_t>(pixels.rows()));
  header += {4, 3, 0, 0, 0};  // four bits each, a palette; deflate, plain filters, no interlace
  std::string colours;
  for (const std::uint32_t colour : palette) {
    for (const int shift : {16, 8, 0}) colours += static_cast<char>(colour >> shift & 0xff);
  }
  std::string lines;
  for (std::size_t row = 0; row < pixels.rows(); ++row) {
    lines += '\0';  // no filter
    for (std::size_t column = 0; column < pixels.columns(); column += 2) {
      const bool alone = column + 1 == pixels.columns();
      const int right = alone ? 0 : pixels.at(row, column + 1);
      lines += static_cast<char>(pixels.at(row, column) << 4 | right);
    }
  }
  std::string file = "\x89PNG\r\n\x1a\n";
  detail::put_chunk(file, "IHDR", header);
  detail::put_chunk(file, "PLTE", colours);
  detail::put_chunk(file, "IDAT", detail::stored(lines));
  detail::put_chunk(file, "IEND", "");
  return file;
}

/// \returns whether the file could be written
inline bool write_png(const std::string& file, const Pixels& pixels, const Palette& palette) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream << png(pixels, palette);
  stream.close();
  return !stream.fail();
}

}  // namespace drawing
