// SPDX-License-Identifier: MIT
/// \file
/// Atomic writing of regular files, following symbolic links.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "fovea/io/file_error.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

[[noreturn]] inline void cannot_write(const std::string& path, int error) {
  refuse_file(path, "cannot be written: " + std::generic_category().message(error));
}

/// The name of a non-regular file's kind, for messages.
inline const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// A temporary file next to the one that it will replace; removed unless it replaces it.
class FileBeside {
 public:
  explicit FileBeside(const std::string& target) {
    // A unique name. Leftovers of processes with the same id are skipped.
    static std::atomic<unsigned> calls = 0;
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
      path_ = target + '.' + std::to_string(::getpid()) + '-' + std::to_string(calls++);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      error_ = descriptor_ < 0 ? errno : 0;
      if (error_ != EEXIST) break;
    }
  }
  FileBeside(const FileBeside&) = delete;
  FileBeside& operator=(const FileBeside&) = delete;
  ~FileBeside() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }

  int descriptor() const { return descriptor_; }
  /// The last errno, or 0.
  int error() const { return error_; }

  /// Renames it to the target.
  void replace(const std::string& target) {
    if (std::rename(path_.c_str(), target.c_str()) != 0) {
      error_ = errno;
      return;
    }
    ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  int error_ = 0;
};

/// Writes all pieces and syncs to disk. Returns 0 or errno.
inline int write_all(int descriptor, std::span<const std::string_view> pieces) {
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = ::write(descriptor, piece.data(), piece.size());
      if (written < 0 && errno != EINTR) return errno;
      if (written > 0) piece.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  // Some file systems do not support fsync.
  return ::fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
}

/// The file that a path resolves to, and its permissions if it exists.
struct OutputTarget {
  std::string path;
  bool exists;
  mode_t permissions;
};

/// \throws std::runtime_error if the target is not a regular file, or is not writable
inline OutputTarget output_target(const std::string& path) {
  std::filesystem::path target = path;
  std::error_code error;
  // Links are followed one by one, since the target may not exist yet.
  for (int links = 0; std::filesystem::is_symlink(target, error); ++links) {
    if (links == 40) cannot_write(path, ELOOP);
    target = target.parent_path() / std::filesystem::read_symlink(target, error);
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      refuse_file(path, std::string("is ") + kind_of(status.st_mode) +
                            "; results are written to regular files only");
    }
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) cannot_write(path, errno);
    return {target.string(), true, status.st_mode & 07777};
  }
  if (errno != ENOENT) cannot_write(path, errno);
  return {target.string(), false, 0};
}

/// Whether after this error the file can be written in place: its directory is not writable, or the
/// file is a mount.
inline bool is_only_of_the_place(int error) {
  return error == EACCES || error == EPERM || error == EROFS || error == EBUSY;
}

}  // namespace detail

/// Rejects a path that write_file could not write to, without changing anything, so that
/// long-running programs fail early. \throws std::runtime_error
inline void check_output(const std::string& path) {
  const detail::OutputTarget target = detail::output_target(path);
  if (target.exists) return;
  const detail::FileBeside beside(target.path);
  if (beside.error() != 0) detail::cannot_write(path, beside.error());
}

/// Atomically replaces the file by these pieces: on interruption or a full disk the old file is
/// kept. Only a file in a directory that is not writable is written in place.
/// \throws std::runtime_error
inline void write_file(const std::string& path, std::span<const std::string_view> pieces) {
  const detail::OutputTarget target = detail::output_target(path);
  detail::FileBeside beside(target.path);
  if (beside.error() == 0) {
    const int error = detail::write_all(beside.descriptor(), pieces);
    if (error != 0) detail::cannot_write(path, error);
    if (target.exists)
      ::fchmod(beside.descriptor(),
               target.permissions);  // fails on file systems without permissions
    beside.replace(target.path);
    if (beside.error() == 0) return;
  }
  if (!target.exists || !detail::is_only_of_the_place(beside.error())) {
    detail::cannot_write(path, beside.error());
  }
  const int file = ::open(target.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) detail::cannot_write(path, errno);
  const int error = detail::write_all(file, pieces);
  if (::close(file) != 0 && error == 0) detail::cannot_write(path, errno);
  if (error != 0) detail::cannot_write(path, error);
}

/// Replaces the file by this text. \throws std::runtime_error as above
inline void write_file(const std::string& path, std::string_view text) {
  write_file(path, std::span<const std::string_view>(&text, 1));
}

FOVEA_NAMESPACE_END
