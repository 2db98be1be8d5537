// SPDX-License-Identifier: MIT
/// \file
/// Memory-mapped files.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "fovea/io/file_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// The bytes of a regular file, mapped for reading. Copies share the mapping. The file must not be
/// truncated while mapped: reading removed pages terminates the program (SIGBUS).
class MappedFile {
 public:
  MappedFile() = default;

  /// Maps the file. \throws std::runtime_error "<path>: <what is wrong>" if it cannot be read or is
  /// not a regular file
  explicit MappedFile(const std::string& path) {
    // The file must be opened before its kind is known. Without O_NONBLOCK, opening a pipe would
    // block.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    const bool is_socket = file.number < 0 && errno == ENXIO;  // or a device without a driver
    if (!is_socket && (file.number < 0 || ::fstat(file.number, &status) != 0)) cannot_read(path);
    if (is_socket || !S_ISREG(status.st_mode)) {
      refuse_file(path, "cannot be read: it is not a regular file");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) return;
    void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
    if (bytes == MAP_FAILED) cannot_read(path);
    ::madvise(bytes, size, MADV_WILLNEED);  // a hint
    owner_ = std::shared_ptr<const void>(
        bytes, [size](const void* all) { ::munmap(const_cast<void*>(all), size); });
    bytes_ = {static_cast<const std::byte*>(bytes), size};
  }

  /// The bytes of the file.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// The bytes of the file as text.
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  /// The owner of the mapping.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
    int number;
  };

  [[noreturn]] static void cannot_read(const std::string& path) {
    const int error = errno;
    refuse_file(path, "cannot be read: " + std::generic_category().message(error));
  }

  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

FOVEA_NAMESPACE_END
