// SPDX-License-Identifier: MIT
/// \file
/// NumPy's .npy files, and folders with one file per tensor.
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "fovea/io/mapped_file.hpp"
#include "fovea/io/output_file.hpp"
#include "fovea/io/tensor_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Parses the header of a .npy file: a Python dictionary of exactly three members.
class NpyHeader {
 public:
  /// \param file its name, for messages
  NpyHeader(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  /// A tensor with the header's type and shape, without bytes. \throws std::runtime_error
  StoredTensor parse() {
    StoredTensor tensor;
    std::vector<std::string_view> seen;
    if (!take('{')) no_dictionary();
    while (!take('}')) {
      const std::string_view key = quoted();
      if (!take(':') || std::find(seen.begin(), seen.end(), key) != seen.end()) no_dictionary();
      seen.push_back(key);
      if (key == "descr") {
        tensor.dtype = dtype();
      } else if (key == "fortran_order") {
        tensor.column_major = truth();
      } else if (key == "shape") {
        tensor.shape = shape();
      } else {
        no_dictionary();
      }
      if (!take(',') && !rest_.starts_with('}')) no_dictionary();
    }
    skip_spaces();
    if (!rest_.empty() || seen.size() != 3) no_dictionary();
    return tensor;
  }

 private:
  [[noreturn]] void no_dictionary() const {
    refuse_file(file_, "its header is not a dictionary with 'descr', 'fortran_order' and 'shape'");
  }

  void skip_spaces() {
    rest_.remove_prefix((std::min)(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  /// Consumes a character after spaces, if it is next.
  bool take(char c) {
    skip_spaces();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take(std::string_view word) {
    skip_spaces();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  /// A quoted string's contents; empty if there is none.
  std::string_view quoted() {
    skip_spaces();
    const std::size_t end = rest_.empty() ? rest_.npos : rest_.find(rest_[0], 1);
    if (end == rest_.npos || (rest_[0] != '\'' && rest_[0] != '"')) return {};
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  Dtype dtype() {
    skip_spaces();
    if (!rest_.starts_with('\'') && !rest_.starts_with('"')) {
      refuse_file(file_, "its header has no simple 'descr', such as '<f4'");
    }
    const std::string_view name = quoted();
    const std::optional<Dtype> dtype = npy_dtype(name);
    if (!dtype) {
      refuse_file(file_, "its type is " + quoted_name(name) +
                             "; expected one of '<f4', '<f8', '<f2' or an integer, little-endian");
    }
    return *dtype;
  }

  bool truth() {
    if (take("True")) return true;
    if (take("False")) return false;
    refuse_file(file_, "its header has no 'fortran_order' of True or False");
  }

  std::vector<Index> shape() {
    if (!take('(')) refuse_file(file_, "its header has no 'shape' in parentheses");
    std::vector<Index> extents;
    bool has_comma = true;
    while (!take(')')) {
      Index extent = -1;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (!has_comma || error != std::errc{} || extent < 0) no_sizes();
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // Python 2's large integers
      extents.push_back(extent);
      has_comma = take(',');
    }
    if (extents.size() == 1 && !has_comma) no_sizes();  // a number in parentheses
    return extents;
  }

  [[noreturn]] void no_sizes() const { refuse_file(file_, "its 'shape' is not a tuple of sizes"); }

  std::string_view rest_;
  const std::string& file_;
};

/// The header of a .npy file of version 1, whose data begins at a multiple of 64 bytes.
inline std::string npy_header(const std::string& file, const StoredTensor& tensor) {
  std::string header = "{'descr': '";
  header += names_of(tensor.dtype).npy;
  header += std::string("', 'fortran_order': ") + (tensor.column_major ? "True" : "False");
  header += ", 'shape': (";
  for (const Index extent : tensor.shape) header += std::to_string(extent) + ", ";
  header += "), }";
  constexpr std::size_t magic = 10;
  header.append(63 - (magic + header.size()) % 64, ' ');
  header += '\n';
  if (header.size() > 0xffff) refuse_file(file, "the tensor has too many dimensions for .npy");
  std::string bytes = "\x93NUMPY";
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

/// Bytes as text, for writing.
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace detail

/// The tensor in the bytes of a .npy file, version 1 to 3: any type but complex, in C or Fortran
/// order. It refers to the bytes. \param file its name, for messages
/// \throws std::runtime_error "<file>: <what is wrong>"
inline StoredTensor parse_npy(std::span<const std::byte> bytes, const std::string& file) {
  constexpr std::string_view magic = "\x93NUMPY";
  const std::string_view text = detail::as_text(bytes);
  if (!text.starts_with(magic)) refuse_file(file, "it is not a .npy file");
  const auto byte = [&](std::size_t i) {
    return i < bytes.size() ? std::to_integer<std::size_t>(bytes[i]) : std::size_t{0};
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3) {
    refuse_file(file, "its version is " + std::to_string(version) + "; expected 1, 2 or 3");
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() < begin || bytes.size() - begin < length) {
    refuse_file(file, "it ends within its header");
  }
  StoredTensor tensor = detail::NpyHeader(text.substr(begin, length), file).parse();
  tensor.bytes = bytes.subspan(begin + length);
  const Index expected = stored_bytes(tensor.dtype, tensor.shape);
  if (expected < 0) refuse_file(file, "it is too large");
  if (static_cast<Index>(tensor.bytes.size()) != expected) {
    refuse_file(file, "it has " + std::to_string(tensor.bytes.size()) +
                          " bytes of data; expected " + std::to_string(expected) + " for " +
                          shape_text(tensor.shape) + " of " +
                          std::string(names_of(tensor.dtype).npy));
  }
  return tensor;
}

/// The tensor of a .npy file, under this name. \throws std::runtime_error as parse_npy
inline TensorSet read_npy(const std::string& path, const std::string& name = "tensor") {
  const MappedFile file(path);
  TensorSet set{.origin = path, .owners = {file.owner()}};
  set.tensors.emplace(name, parse_npy(file.bytes(), path));
  return set;
}

/// Writes a .npy file atomically.
/// \throws std::runtime_error if it cannot be written, or if .npy lacks the type (bfloat16)
inline void write_npy(const std::string& path, const StoredTensor& tensor) {
  if (names_of(tensor.dtype).npy.empty()) {
    refuse_file(path, ".npy has no type for " + std::string(names_of(tensor.dtype).safetensors));
  }
  const std::string header = detail::npy_header(path, tensor);
  const std::string_view pieces[] = {header, detail::as_text(tensor.bytes)};
  write_file(path, pieces);
}

/// The tensors of all files NAME.npy in a folder, by NAME.
/// \throws std::runtime_error if the folder cannot be read, or as parse_npy
inline TensorSet read_npy_folder(const std::string& folder) {
  TensorSet set{.origin = folder};
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".npy") continue;
    TensorSet one = read_npy(entry->path().string(), entry->path().stem().string());
    set.tensors.merge(one.tensors);
    set.owners.push_back(one.owners.front());
  }
  if (error) refuse_file(folder, "cannot be read: " + error.message());
  return set;
}

/// Writes each tensor to NAME.npy in a folder, which is created if missing. Other files are kept;
/// metadata is not written.
/// \throws std::runtime_error as write_npy, or if a name is not a valid file name; earlier files
/// have been written
inline void write_npy_folder(const std::string& folder, const TensorSet& set) {
  for (const auto& [name, tensor] : set.tensors) {
    if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
      refuse_file(folder, quoted_name(name) + " is not a valid file name");
    }
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refuse_file(folder, "cannot be created: " + error.message());
  for (const auto& [name, tensor] : set.tensors) write_npy(folder + '/' + name + ".npy", tensor);
}

FOVEA_NAMESPACE_END
