// SPDX-License-Identifier: MIT
// Files of results: written as a whole, through links, over nothing but regular files.
#include "fovea/io/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "bench/io/read_file.hpp"

namespace fovea_test::io_output_file {

namespace fs = std::filesystem;
using bench::read_file;
using fovea::check_output;
using fovea::write_file;

/// A directory that is removed at the end.
class OutputFile : public testing::Test {
 protected:
  OutputFile() {
    std::string name = (fs::temp_directory_path() / "fovea_output.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~OutputFile() override { fs::remove_all(directory_); }

  std::string path(const char* name) const { return (directory_ / name).string(); }

  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }

 private:
  fs::path directory_;
};

using Names = std::set<std::string>;

/// The message of check_output and write_file for a path, which must be the same.
std::string refusal_of(const std::string& path) {
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string checked = message_of([&] { check_output(path); });
  EXPECT_EQ(message_of([&] { write_file(path, "text"); }), checked);
  return checked;
}

TEST_F(OutputFile, IsCreatedAndReplacedAtomically) {
  const std::string file = path("a.json");
  check_output(file);
  EXPECT_EQ(names(), Names{});  // looking leaves nothing
  write_file(file, "a longer text");
  EXPECT_EQ(read_file(file), "a longer text");
  check_output(file);
  EXPECT_EQ(read_file(file), "a longer text");
  write_file(file, "short");
  EXPECT_EQ(read_file(file), "short");
  EXPECT_EQ(names(), Names{"a.json"});
}

TEST_F(OutputFile, KeepsThePermissionsOfTheFile) {
  const auto mode_of = [](const std::string& file) { return fs::status(file).permissions(); };
  const mode_t mask = ::umask(027);
  write_file(path("new"), "x");
  ::umask(mask);
  EXPECT_EQ(mode_of(path("new")), fs::perms(0640));
  fs::permissions(path("new"), fs::perms(0604));
  write_file(path("new"), "y");
  EXPECT_EQ(mode_of(path("new")), fs::perms(0604));
}

TEST_F(OutputFile, IsWrittenThroughLinks) {
  fs::create_directory(path("kept"));
  write_file(path("kept/file"), "before");
  fs::create_symlink("kept/file", path("near"));            // relative to its directory
  fs::create_symlink(path("near"), path("kept/far"));       // a link to a link
  fs::create_symlink("kept/not there yet", path("empty"));  // to nothing
  write_file(path("kept/far"), "after");
  check_output(path("empty"));
  EXPECT_FALSE(fs::exists(path("empty")));
  write_file(path("empty"), "new");
  EXPECT_TRUE(fs::is_symlink(path("near")));
  EXPECT_TRUE(fs::is_symlink(path("kept/far")));
  EXPECT_TRUE(fs::is_symlink(path("empty")));
  EXPECT_EQ(read_file(path("kept/file")), "after");
  EXPECT_EQ(read_file(path("kept/not there yet")), "new");
  EXPECT_EQ(names(), (Names{"kept", "near", "empty"}));
}

/// A device; made for root, who could destroy one that others need. Empty if there can be none.
std::string device_in(const std::string& directory) {
  if (::geteuid() != 0) return "/dev/null";
  const std::string device = directory + "/device";
  return ::mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0 ? device : "";
}

TEST_F(OutputFile, RefusesDevices) {
  const std::string device = device_in(path(""));
  if (device.empty()) GTEST_SKIP() << "no right to make a device";
  const std::string says = ": is a device; results are written to regular files only";
  EXPECT_EQ(refusal_of(device), device + says);
  fs::create_symlink(device, path("link"));
  EXPECT_EQ(refusal_of(path("link")), path("link") + says);
  EXPECT_TRUE(fs::is_character_file(device));
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(OutputFile, RefusesIrregularFiles) {
  const std::string says = "; results are written to regular files only";
  fs::create_directory(path("directory"));
  EXPECT_EQ(refusal_of(path("directory")), path("directory") + ": is a directory" + says);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal_of(path("pipe")), path("pipe") + ": is a pipe" + says);
  fs::create_symlink("pipe", path("link"));
  EXPECT_EQ(refusal_of(path("link")), path("link") + ": is a pipe" + says);
  EXPECT_TRUE(fs::is_directory(path("directory")));
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(names(), (Names{"directory", "pipe", "link"}));
}

TEST_F(OutputFile, ReportsThePathThatCannotBeWritten) {
  write_file(path("file"), "");
  fs::create_symlink("round", path("round"));
  for (const char* name : {"no directory/file", "file/below", "round"}) {
    EXPECT_EQ(refusal_of(path(name)).find(path(name) + ": cannot be written: "), 0u) << name;
  }
  EXPECT_EQ(names(), (Names{"file", "round"}));
}

/// The largest file that may be written, for the time of its life: to a program, a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_F(OutputFile, AFullDiskKeepsTheOldFile) {
  const std::string file = path("a.json");
  write_file(file, "before");
  const std::string text(10000, 'x');
  for (const std::string& full : {file, path("new.json")}) {
    const FullDisk disk(4096);
    EXPECT_THROW(write_file(full, text), std::runtime_error);
  }
  EXPECT_EQ(read_file(file), "before");
  EXPECT_EQ(names(), Names{"a.json"});
  write_file(file, text);
  EXPECT_EQ(read_file(file), text);
}

/// Drops root privileges, which ignore permissions, during its lifetime.
class PlainUser {
 public:
  static constexpr uid_t kNobody = 65534;

  explicit PlainUser(const std::string& home) {
    if (was_root_ && ::chown(home.c_str(), kNobody, static_cast<gid_t>(-1)) == 0) {
      EXPECT_EQ(::seteuid(kNobody), 0);
    }
  }
  PlainUser(const PlainUser&) = delete;
  PlainUser& operator=(const PlainUser&) = delete;
  ~PlainUser() {
    if (was_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  bool was_root_ = ::geteuid() == 0;
};

TEST_F(OutputFile, InAReadOnlyDirectoryIsWrittenInPlace) {
  const PlainUser user(path(""));
  fs::create_directory(path("closed"));
  const std::string file = path("closed/file");
  write_file(file, "before");
  fs::permissions(path("closed"), fs::perms(0500));
  write_file(file, "after");
  EXPECT_EQ(read_file(file), "after");
  EXPECT_NE(refusal_of(path("closed/new")), "accepted");
  fs::permissions(path("closed"), fs::perms(0700));
  fs::permissions(file, fs::perms(0400));
  EXPECT_NE(refusal_of(file), "accepted");
  EXPECT_EQ(read_file(file), "after");
}

}  // namespace fovea_test::io_output_file
