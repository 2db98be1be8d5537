// SPDX-License-Identifier: MIT
// fovea_test(ALONE FULL PROGRAM fovea_quality)
// The program as users run it: with a small model, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/head_files.hpp"
#include "bench/io/gaussian.hpp"
#include "support/run_program.hpp"

namespace fovea_test::bench_fovea_quality {

class FoveaQuality : public RunProgram {
 protected:
  FoveaQuality() : RunProgram(FOVEA_PROGRAM) {}

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

TEST_F(FoveaQuality, MeasuresAUsersModel) {
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

TEST_F(FoveaQuality, PlotsARunFromItsJson) {
  write_tensors(70, 1);
  ASSERT_EQ(run("--qkv . --repeat 1"), 0) << errors_;
  ASSERT_EQ(run("--draw out/quality.json --plots again"), 0) << errors_;
  for (const char* picture : {"/quality.svg", "/policies.svg"}) {
    EXPECT_EQ(text_of(std::string("again") + picture), text_of(std::string("out") + picture));
  }
  EXPECT_EQ(run("--draw q.npy"), 1);
  EXPECT_EQ(errors_.find("fovea_quality: q.npy: is not a result of fovea_quality: "), 0u)
      << errors_;
}

/// The systems without a causal form, with full attention that sees later keys.
TEST_F(FoveaQuality, MeasuresNonCausalOperators) {
  write_tensors(128, 1);
  ASSERT_EQ(run("--qkv . --repeat 1 --causal no"), 0) << errors_;
  EXPECT_EQ(errors_, "");
  EXPECT_NE(output_.find("D = 8, N = 128, not causal\n"), output_.npos) << output_;
  EXPECT_NE(output_.find("\nomitted: Nystroem, m = 256: N = 128 is not a multiple of 256\n"),
            output_.npos)
      << output_;
  const std::string json = text_of("out/quality.json");
  EXPECT_EQ(count(json, "\"causal\": \"no\""), 1);
  for (const auto& [system, rows] :
       {std::pair{"linformer", 3}, {"nystroem", 3}, {"sinkhorn", 3}, {"fsat", 3}, {"local", 5}}) {
    EXPECT_EQ(count(json, "\"operator\": \"" + std::string(system) + "\""), rows) << system;
  }
  // A block of all rows, and as many means as keys, are full attention. There are no pairs then.
  for (const char* name : {"Sinkhorn, b = 128", "Linformer, means, P = 128"}) {
    const std::size_t row = json.find("\"name\": \"" + std::string(name) + "\"");
    ASSERT_NE(row, json.npos);
    const std::string key = "\"relative_difference_from_full\": ";
    EXPECT_LT(std::stod(json.substr(json.find(key, row) + key.size())), 1e-5) << name;
    EXPECT_LT(json.find("\"weight\": null", row), json.find(key, row)) << name;
  }
  EXPECT_GT(count(output_, " none "), 9);
  EXPECT_EQ(output_.find("nan"), output_.npos) << output_;
  // Of each system in the plot, the colour that it has everywhere.
  const std::string plot = text_of("out/quality.svg");
  for (const char* system : {"linformer", "nystroem", "sinkhorn", "fsat"}) {
    EXPECT_NE(plot.find("s-" + std::string(system)), plot.npos) << system;
  }
  EXPECT_NE(plot.find("not causal, N = 128"), plot.npos);

  ASSERT_EQ(run("--qkv . --repeat 1 --causal yes"), 0) << errors_;
  EXPECT_EQ(count(text_of("out/quality.json"), "\"operator\": \"sinkhorn\""), 0);
  EXPECT_NE(output_.find("Sinkhorn, b = 32: it has no causal form; "), output_.npos) << output_;
}

TEST_F(FoveaQuality, SupportsOnePositionAndOneHead) {
  write_tensors(1, 1);
  for (const char* causal : {"yes", "no"}) {
    EXPECT_EQ(run("--qkv . --repeat 1 --causal " + std::string(causal)), 0) << errors_;
    EXPECT_EQ(output_.find("nan"), output_.npos) << output_;
  }
  for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
    write_heads(folder_ / name, 1, 7, bench::gaussians<float>(1, 2, 70 * 7));
  }
  for (const char* causal : {"yes", "no"}) {
    EXPECT_EQ(run("--qkv . --repeat 1 --causal " + std::string(causal)), 0) << errors_;
    EXPECT_NE(output_.find("1 head, D = 7, N = 70"), output_.npos) << output_;
    EXPECT_EQ(output_.find("nan"), output_.npos) << output_;
  }
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
  EXPECT_EQ(errors_.find("fovea_quality: q.npy/x: cannot be created: "), 0u) << errors_;
  std::filesystem::create_directories(folder_ / "there/policies.svg");
  EXPECT_EQ(run("--qkv . --plots there"), 1);
  EXPECT_EQ(errors_.find("fovea_quality: there/policies.svg: is a directory"), 0u) << errors_;
  EXPECT_EQ(run("--causal maybe"), 2);
  EXPECT_EQ(errors_, "fovea_quality: --causal: 'maybe' is not yes or no\n");
  EXPECT_EQ(run("--colour"), 2);
  EXPECT_EQ(errors_, "fovea_quality: The following argument was not expected: --colour\n");
}

}  // namespace fovea_test::bench_fovea_quality
