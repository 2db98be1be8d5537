// SPDX-License-Identifier: MIT
// The program as users run it: a small model of their own, and what it refuses.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "bench/head_files.hpp"
#include "bench/io/gaussian.hpp"
#include "support/run_program.hpp"

namespace fovea_test {
namespace {

class FoveaQuality : public RunProgram {
 protected:
  FoveaQuality() : RunProgram(FOVEA_QUALITY) {}

  void write_tensors(Index rows, float first_of_v) const {
    for (const std::string name : {"q", "k", "v"}) {
      const Index heads = name == "q" ? 2 : 1;
      std::vector<float> values =
          bench::gaussians<float>(1, static_cast<std::uint32_t>(name[0]), heads * rows * 8);
      if (name == "v") values[0] = first_of_v;
      write_heads(folder_ / (name + ".npy"), heads, 8, values);
    }
  }
};

TEST_F(FoveaQuality, MeasuresAModelOfTheUser) {
  write_tensors(70, 1);
  ASSERT_EQ(run("--qkv . --repeat 1"), 0) << errors_;
  EXPECT_EQ(errors_, "");
  EXPECT_NE(output_.find("2 heads on 1 key head, D = 8, N = 70"), output_.npos) << output_;
  const std::string json = text_of("out/quality.json");
  EXPECT_EQ(count(json, "\"keys_per_row\": "), 30);  // five policies and the best, each of five K
  EXPECT_EQ(count(json, "\"kind\": "), 2);
  EXPECT_EQ(count(json, "\"name\": \"full\""), 1);
  // Full attention is exact, and so of the best set.
  EXPECT_EQ(json.find("\"best\": \"*\""), json.find("\"best\": "));
  EXPECT_EQ(json.find("nan"), json.npos);
  for (const char* picture : {"out/quality.svg", "out/policies.svg"}) {
    EXPECT_EQ(text_of(picture).find("<svg "), 0u) << picture;
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
  EXPECT_FALSE(has("out"));
  write_tensors(70, 1);
  EXPECT_EQ(run("--qkv . --length 71"), 1);
  EXPECT_EQ(errors_, "fovea_quality: .: has 70 rows; --length asks for 71\n");
  EXPECT_EQ(run("--qkv . --plots q.npy/x"), 1);
  EXPECT_EQ(run("--colour"), 2);
  EXPECT_EQ(errors_, "fovea_quality: '--colour' is not understood; see --help\n");
}

}  // namespace
}  // namespace fovea_test
