// SPDX-License-Identifier: MIT
/// \file
/// Files of results: as a whole or not at all, through symbolic links, and only where a regular
/// file is or can be. Test: tests/bench/output_file_test.cpp.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace bench {

namespace detail {

[[noreturn]] inline void refuse_output(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

[[noreturn]] inline void cannot_write(const std::string& path, int error) {
  refuse_output(path, "cannot be written: " + std::generic_category().message(error));
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
  explicit FileBeside(const std::string& target) : path_(target + ".XXXXXX") {
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0) error_ = errno;
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

/// Writes all of it and waits until it is on the disk. Returns 0 or errno.
inline int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  // Some file systems cannot be waited for.
  return ::fsync(descriptor) != 0 && errno != EINVAL ? errno : 0;
}

/// Permissions of a new file.
inline mode_t new_file_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

/// The file that a path leads to through symbolic links, and its permissions.
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
      refuse_output(path, std::string("is ") + kind_of(status.st_mode) +
                              "; results are written to regular files only");
    }
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) cannot_write(path, errno);
    return {target.string(), true, status.st_mode & 07777};
  }
  if (errno != ENOENT) cannot_write(path, errno);
  return {target.string(), false, new_file_mode()};
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

/// Replaces the file as a whole: a run that is stopped, and a disk that is full, leave what was
/// there. Only a file whose directory cannot be written to is written in place.
/// \throws std::runtime_error
inline void write_file(const std::string& path, std::string_view text) {
  const detail::OutputTarget target = detail::output_target(path);
  detail::FileBeside beside(target.path);
  if (beside.error() == 0) {
    const int error = detail::write_all(beside.descriptor(), text);
    if (error != 0) detail::cannot_write(path, error);
    ::fchmod(beside.descriptor(), target.permissions);  // fails where files have none
    beside.replace(target.path);
    if (beside.error() == 0) return;
  }
  if (!target.exists || !detail::is_only_of_the_place(beside.error())) {
    detail::cannot_write(path, beside.error());
  }
  const int file = ::open(target.path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file < 0) detail::cannot_write(path, errno);
  const int error = detail::write_all(file, text);
  if (::close(file) != 0 && error == 0) detail::cannot_write(path, errno);
  if (error != 0) detail::cannot_write(path, error);
}

}  // namespace bench
