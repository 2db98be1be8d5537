// SPDX-License-Identifier: MIT
/// \file
/// Files that are written as a whole or not at all, through symbolic links, and only where a
/// regular file is or can be.
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

/// Its name for people, of what is no regular file.
inline const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// A file that is being written beside the one that it will replace. What is not put in its place
/// is removed.
class FileBeside {
 public:
  explicit FileBeside(const std::string& target) {
    // A name that no other call has. What a program of the same number left behind is passed over.
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
  /// errno of what failed last, or 0.
  int error() const { return error_; }

  /// Gives it the name of the target.
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

/// Writes all pieces and waits until they are on the disk. Returns 0 or errno.
inline int write_all(int descriptor, std::span<const std::string_view> pieces) {
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = ::write(descriptor, piece.data(), piece.size());
      if (written < 0 && errno != EINTR) return errno;
      if (written > 0) piece.remove_prefix(static_cast<std::size_t>(written));
    }
  }
  // Some file systems cannot be waited for.
  return ::fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
}

/// The file that a path leads to through symbolic links, and its permissions if it is there.
struct OutputTarget {
  std::string path;
  bool exists;
  mode_t permissions;
};

/// \throws std::runtime_error where something stands that is no regular file, or is not to be
/// written
inline OutputTarget output_target(const std::string& path) {
  std::filesystem::path target = path;
  std::error_code error;
  // Also to a file that is not there yet, so the links are followed one by one.
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

/// Whether that error leaves a file to be written in place: its directory cannot be written to, or
/// the file is a mount.
inline bool is_only_of_the_place(int error) {
  return error == EACCES || error == EPERM || error == EROFS || error == EBUSY;
}

}  // namespace detail

/// Refuses a path that write_file could not write to, and changes nothing: a program that measures
/// for minutes says so at once. \throws std::runtime_error
inline void check_output(const std::string& path) {
  const detail::OutputTarget target = detail::output_target(path);
  if (target.exists) return;
  const detail::FileBeside beside(target.path);
  if (beside.error() != 0) detail::cannot_write(path, beside.error());
}

/// Replaces the file by these pieces as a whole: a run that is stopped, and a disk that is full,
/// leave what was there. Only a file whose directory cannot be written to is written in place.
/// \throws std::runtime_error
inline void write_file(const std::string& path, std::span<const std::string_view> pieces) {
  const detail::OutputTarget target = detail::output_target(path);
  detail::FileBeside beside(target.path);
  if (beside.error() == 0) {
    const int error = detail::write_all(beside.descriptor(), pieces);
    if (error != 0) detail::cannot_write(path, error);
    if (target.exists)
      ::fchmod(beside.descriptor(), target.permissions);  // fails where there are none
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
