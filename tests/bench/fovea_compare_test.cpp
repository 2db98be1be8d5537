// SPDX-License-Identifier: MIT
// The program as users run it: real tensors with grouped heads, input and paths that it refuses,
// and what it prints where nobody watches.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "bench/io/read_file.hpp"

namespace {

namespace fs = std::filesystem;
using bench::Index;
using bench::read_file;

constexpr Index kRows = 64;
constexpr Index kWidth = 8;

/// A .npy file of float32.
void write_npy(const fs::path& file, Index heads, Index width, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(heads) + ", " + std::to_string(kRows) + ", " +
                       std::to_string(width) + "), }\n";
  std::string bytes = "\x93NUMPY";
  bytes += {1, 0, static_cast<char>(header.size()), 0};
  bytes += header;
  std::string data(values.size() * sizeof(float), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  std::ofstream(file, std::ios::binary) << bytes << data;
}

/// A run of the program in a directory that is gone at the end.
class FoveaCompare : public testing::Test {
 protected:
  FoveaCompare() {
    std::string name = (fs::temp_directory_path() / "fovea_compare.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~FoveaCompare() override { fs::remove_all(directory_); }

  /// q of 4 heads, k and v of 2.
  void write_tensors(Index value_width, float first_of_k) const {
    const auto tensor = [](std::uint32_t stream, Index heads, Index width) {
      return bench::gaussians<float>(1, stream, heads * kRows * width);
    };
    write_npy(directory_ / "q.npy", 4, kWidth, tensor(0, 4, kWidth));
    std::vector<float> k = tensor(1, 2, kWidth);
    k[0] = first_of_k;
    write_npy(directory_ / "k.npy", 2, kWidth, k);
    write_npy(directory_ / "v.npy", 2, value_width, tensor(2, 2, value_width));
  }

  /// Returns the exit status of a shell's command.
  int run(const std::string& command) {
    const std::string whole =
        "cd '" + directory_.string() + "' && " + command + " > stdout 2> stderr < /dev/null";
    const int status = std::system(whole.c_str());  // NOLINT(cert-env33-c): as users do
    output_ = read_file((directory_ / "stdout").string());
    errors_ = read_file((directory_ / "stderr").string());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string json() const { return read_file((directory_ / "out/compare.json").string()); }
  bool has(const char* name) const { return fs::exists(directory_ / name); }

  std::string output_, errors_;
  fs::path directory_;
};

Index count(const std::string& text, const std::string& of) {
  Index n = 0;
  for (std::size_t at = 0; (at = text.find(of, at)) != text.npos; at += of.size()) ++n;
  return n;
}

// Rows of the table, without those that need FFTW.
constexpr Index kOperators = 35;

/// The rows that need FFTW, in what the program wrote.
Index with_fftw(const std::string& all) {
  return count(all, "\"operator\": \"fsat\"") + count(all, "\"operator\": \"mixer\"");
}

constexpr const char* kCompare = "'" FOVEA_COMPARE "' --repeat 1 --qkv .";

/// What stands on stderr beside notes of the machine: that it was busy, or has no gnuplot.
std::string without_notes(const std::string& errors) {
  std::string rest;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("note: ") && !line.starts_with("no plots: ")) rest += line + "\n";
  }
  return rest;
}

TEST_F(FoveaCompare, GroupedHeadsAreRightInEveryRow) {
  write_tensors(kWidth, 1);
  EXPECT_EQ(run(kCompare), 0) << output_ << errors_;
  EXPECT_EQ(without_notes(errors_), "");  // no progress where nobody watches
  EXPECT_NE(output_.find("4 heads on 2 key heads, D = 8"), output_.npos) << output_;
  for (const char* mark : {"WRONG", "FAILED", "skipped", " nan", " inf"}) {
    EXPECT_EQ(output_.find(mark), output_.npos) << output_;
  }
  const std::string all = json();
  EXPECT_EQ(count(all, "\"label\": "), kOperators + with_fftw(all));
  EXPECT_EQ(count(all, "\"label\": "), count(all, "\"error_ratio\": "));
  EXPECT_EQ(count(all, "\"pass\": \"training\""), 4);
  EXPECT_EQ(count(all, "\"full\": \"full, causal\""), 10);  // of the rows that are causal
  // Nothing lies about but what is told of.
  for (const auto& entry : fs::directory_iterator(directory_ / "out")) {
    const std::string extension = entry.path().extension().string();
    EXPECT_TRUE(extension == ".json" || extension == ".gp" || extension == ".svg" ||
                extension == ".png")
        << entry.path();
  }
  EXPECT_EQ(has("out/time.svg"), output_.find("out/time.svg") != output_.npos);
}

TEST_F(FoveaCompare, ARowThatCannotRunIsMarkedAndTheOthersRun) {
  write_tensors(kWidth - 2, 1);  // narrower than what is crossed or mixed
  EXPECT_EQ(run(kCompare), 0) << output_ << errors_;
  const std::string all = json();
  EXPECT_EQ(count(all, "\"error_ratio\": "), kOperators);
  EXPECT_EQ(count(all, "\"skipped\": "), with_fftw(all)) << output_;
  EXPECT_EQ(count(output_, "the cross has the width of q, which is 8; v has 6"),
            count(all, "\"operator\": \"fsat\""));
  EXPECT_EQ(count(output_, "the mixer has the width of q, which is 8; v has 6"),
            count(all, "\"operator\": \"mixer\""));
}

TEST_F(FoveaCompare, NanIsRefusedBeforeAnythingIsWritten) {
  write_tensors(kWidth, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(run(kCompare), 1);
  EXPECT_EQ(errors_.find("fovea_compare: .: k.npy holds NaN at head 0, row 0, column 0"), 0u)
      << errors_;
  EXPECT_EQ(output_, "");
  EXPECT_FALSE(has("out"));
}

TEST_F(FoveaCompare, WhatIsNoRegularFileIsRefusedBeforeTheMeasuring) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(::mkfifo((directory_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(run(kCompare + std::string(" --json pipe")), 1);
  EXPECT_EQ(errors_, "fovea_compare: pipe: is a pipe; results are written to regular files only\n");
  EXPECT_EQ(output_, "");
  fs::create_directories(directory_ / "out/time.png");
  EXPECT_EQ(run(kCompare), 1);
  EXPECT_NE(errors_.find("out/time.png: is a directory"), errors_.npos) << errors_;
}

/// The script builds nothing to help, and says what the program says.
TEST_F(FoveaCompare, TheScriptHelpsAsTheProgramDoes) {
  ASSERT_EQ(run("'" FOVEA_COMPARE "' --help"), 0);
  const std::string help = output_;
  EXPECT_EQ(help.find("fovea_compare: "), 0u);
  EXPECT_EQ(count(help, "\n  --"), 10);
  for (const char* flag : {"--help", "-h", "--lengths 64 --help"}) {
    ASSERT_EQ(run("bash '" FOVEA_SOURCE_DIR "/cmake/compare.sh' " + std::string(flag)), 0);
    EXPECT_EQ(output_, help);
    EXPECT_EQ(errors_, "");
  }
}

}  // namespace
