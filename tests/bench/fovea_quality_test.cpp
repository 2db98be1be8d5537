// SPDX-License-Identifier: MIT
// The program as users run it: a small model of their own, and what it refuses.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "bench/io/read_file.hpp"
#include "fovea/io/npy.hpp"

namespace {

namespace fs = std::filesystem;
using bench::Index;
using bench::read_file;

class FoveaQuality : public testing::Test {
 protected:
  FoveaQuality() {
    std::string name = (fs::temp_directory_path() / "fovea_quality.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~FoveaQuality() override { fs::remove_all(directory_); }

  void write_tensors(Index rows, float first_of_v) const {
    for (const char* name : {"q", "k", "v"}) {
      const Index heads = name[0] == 'q' ? 2 : 1;
      std::vector<float> values =
          bench::gaussians<float>(1, static_cast<std::uint32_t>(name[0]), heads * rows * 8);
      if (name[0] == 'v') values[0] = first_of_v;
      fovea::write_npy((directory_ / name).string() + ".npy",
                       {.dtype = fovea::Dtype::f32,
                        .shape = {heads, rows, 8},
                        .bytes = std::as_bytes(std::span<const float>(values))});
    }
  }

  /// Returns the exit status.
  int run(const std::string& arguments) {
    const std::string command = "cd '" + directory_.string() + "' && '" FOVEA_QUALITY "' " +
                                arguments + " > stdout 2> stderr < /dev/null";
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): as users do
    output_ = read_file((directory_ / "stdout").string());
    errors_ = read_file((directory_ / "stderr").string());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string output_, errors_;
  fs::path directory_;
};

Index count(const std::string& text, const std::string& of) {
  Index n = 0;
  for (std::size_t at = 0; (at = text.find(of, at)) != text.npos; at += of.size()) ++n;
  return n;
}

TEST_F(FoveaQuality, MeasuresAModelOfTheUser) {
  write_tensors(70, 1);
  ASSERT_EQ(run("--qkv . --repeat 1"), 0) << errors_;
  EXPECT_EQ(errors_, "");
  EXPECT_NE(output_.find("2 heads on 1 key head, D = 8, N = 70"), output_.npos) << output_;
  const std::string json = read_file((directory_ / "out/quality.json").string());
  EXPECT_EQ(count(json, "\"keys_per_row\": "), 30);  // five policies and the best, each of five K
  EXPECT_EQ(count(json, "\"kind\": "), 2);
  EXPECT_EQ(count(json, "\"name\": \"full\""), 1);
  // Full attention is exact, and so of the best set.
  EXPECT_EQ(json.find("\"best\": \"*\""), json.find("\"best\": "));
  EXPECT_EQ(json.find("nan"), json.npos);
  for (const char* picture : {"out/quality.svg", "out/policies.svg"}) {
    EXPECT_EQ(read_file((directory_ / picture).string()).find("<svg "), 0u) << picture;
  }
}

TEST_F(FoveaQuality, TakesOnePosition) {
  write_tensors(1, 1);
  EXPECT_EQ(run("--qkv . --repeat 1"), 0) << errors_;
  EXPECT_EQ(output_.find("nan"), output_.npos) << output_;
}

TEST_F(FoveaQuality, RefusesWithOneLine) {
  EXPECT_EQ(run("--qkv ."), 1);
  EXPECT_NE(errors_.find("fovea_quality: ./q.npy: "), errors_.npos) << errors_;
  write_tensors(70, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(run("--qkv ."), 1);
  EXPECT_EQ(errors_.find("fovea_quality: .: v.npy holds NaN at head 0, row 0, column 0"), 0u)
      << errors_;
  EXPECT_FALSE(fs::exists(directory_ / "out"));
  write_tensors(70, 1);
  EXPECT_EQ(run("--qkv . --length 71"), 1);
  EXPECT_EQ(errors_, "fovea_quality: .: has 70 rows; --length asks for 71\n");
  EXPECT_EQ(run("--qkv . --plots q.npy/x"), 1);
  EXPECT_EQ(run("--colour"), 2);
  EXPECT_EQ(errors_, "fovea_quality: '--colour' is not understood; see --help\n");
}

}  // namespace
