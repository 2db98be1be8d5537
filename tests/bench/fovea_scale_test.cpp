// SPDX-License-Identifier: MIT
// fovea_test(ALONE FULL PROGRAM fovea_scale)
// The program as users run it, on 1 to 4 ranks: the bytes of its model are those that were sent,
// for every operator, its JSON and plots are complete, and it refuses unknown arguments. No test
// depends on time.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/run_program.hpp"

namespace fovea_test::bench_fovea_scale {

using Json = nlohmann::json;

// Halves, thirds and quarters of it end inside of segments and blocks of every size; itself it has
// blocks of 64 rows.
constexpr const char* kSmall = "--rows 1088 --heads 2 --repeat 1";
// Without those that need FFTW.
constexpr std::size_t kOperators = 31;
// BigBird, Smart Bird, FSAT and lists that are given.
constexpr std::size_t kOfChoices = 4;

class FoveaScale : public RunProgram {
 protected:
  FoveaScale() : RunProgram(FOVEA_PROGRAM) {}

  /// Returns the exit status of that many ranks of the program.
  int run_ranks(int ranks, const std::string& arguments) {
    return shell(std::string(FOVEA_MPIRUN) + " " + std::to_string(ranks) + " '" FOVEA_PROGRAM "' " +
                 arguments);
  }

  Json json() const { return Json::parse(text_of("scale.json")); }

  /// The names of the lines in a plot.
  std::string lines_of(const std::string& plot) const {
    const std::string svg = text_of("plots/" + plot + ".svg");
    std::string names;
    for (std::size_t at = 0; (at = svg.find("<title>", at)) != svg.npos;) {
      at += 7;
      names += svg.substr(at, svg.find('<', at) - at) + "; ";
    }
    return names;
  }
};

double number(const Json& of, const std::string& name) {
  const Json& value = of.at(name);
  return value.is_null() ? 0 : value.get<double>();
}

/// Expects that the bytes sent by all ranks, and by the rank with most, equal the model's.
void expect_bytes(const Json& all, const std::string& pass, int ranks, std::size_t of_choices) {
  EXPECT_EQ(all.at("pass").get<std::string>(), pass);
  EXPECT_EQ(number(all, "ranks"), ranks);
  std::size_t means = 0;
  for (const Json& result : all.at("results")) {
    const std::string what = result.at("operator").get<std::string>() + ", " + pass + ", on " +
                             std::to_string(ranks) + " ranks";
    const bool is_exact = result.at("bytes_are").get<std::string>() == "exact";
    means += is_exact ? 0 : 1;
    for (const std::string sent : {"bytes_sent", "bytes_sent_by_all"}) {
      const double counted = number(result, sent);
      const double modelled = number(result, sent + "_in_model");
      if (is_exact || ranks == 1) {
        EXPECT_EQ(counted, modelled) << sent << " of " << what;
      } else {
        // The chosen keys are not quite evenly distributed.
        EXPECT_LT(counted, 1.15 * modelled) << sent << " of " << what;
        EXPECT_GT(counted, 0.6 * modelled) << sent << " of " << what;
      }
    }
  }
  EXPECT_EQ(means, of_choices);
}

TEST_F(FoveaScale, ModelPredictsSentBytes) {
  for (const int ranks : {2, 3}) {
    for (const std::string pass : {"forward", "backward"}) {
      const std::string flag = pass == "forward" ? "" : " --backward";
      ASSERT_EQ(run_ranks(ranks, kSmall + flag + " --operator all --json scale.json"), 0)
          << errors_;
      const Json all = json();
      expect_bytes(all, pass, ranks, kOfChoices);
      // A decoder has no backward pass.
      EXPECT_GE(all.at("results").size(), kOperators - (pass == "forward" ? 0 : 1));
    }
  }
}

TEST_F(FoveaScale, ModelPredictsSentBytesOfBaselines) {
  ASSERT_EQ(run_ranks(4, std::string(kSmall) + " --json scale.json"), 0) << errors_;
  expect_bytes(json(), "forward", 4, kOfChoices);
}

/// Ranks have several segments of keys each, and heads are fewer than they are.
TEST_F(FoveaScale, ModelPredictsSentBytesOfLongSequences) {
  const std::string some =
      " --operator lin --operator Lin --operator Luna --operator Nys --operator Perf --operator Rei"
      " --operator Sink --operator delta --operator fixed --operator mixer --operator decoding";
  for (const std::string pass : {"forward", "backward"}) {
    const std::string flag = pass == "forward" ? "" : " --backward";
    ASSERT_EQ(run_ranks(3, "--rows 8000 --repeat 1" + flag + some + " --json scale.json"), 0)
        << errors_;
    expect_bytes(json(), pass, 3, 0);
  }
}

TEST_F(FoveaScale, OneRankSendsNothing) {
  ASSERT_EQ(run(std::string(kSmall) + " --operator all --json scale.json"), 0) << errors_;
  const Json all = json();
  expect_bytes(all, "forward", 1, kOfChoices);
  for (const Json& result : all.at("results")) {
    EXPECT_EQ(number(result, "bytes_sent"), 0) << result.at("operator").get<std::string>();
  }
}

/// Slow systems are omitted, and so are those that do not support that many rows.
TEST_F(FoveaScale, RunsRequestedSystems) {
  const auto names = [&](const std::string& arguments) {
    EXPECT_EQ(run("--heads 2 --repeat 1 --json scale.json " + arguments), 0) << errors_;
    std::string all;
    const Json read = json();
    for (const Json& result : read.at("results")) {
      all += result.at("operator").get<std::string>() + "; ";
    }
    return all;
  };
  const std::string usual = names("--rows 1100");
  EXPECT_EQ(usual.find("full, causal; full; "), 0u) << usual;
  EXPECT_NE(usual.find("Linformer"), usual.npos);
  for (const char* other : {"Synthesizer", "FAT", "Sinkhorn", "Nystroem"}) {
    EXPECT_EQ(usual.find(other), usual.npos) << other;
  }
  EXPECT_NE(output_.find("Sinkhorn 64: N must be a multiple of 64"), output_.npos) << output_;
  EXPECT_EQ(names("--rows 128 --operator FAT"), "FAT; ");
}

TEST_F(FoveaScale, TheModelIsPlottedTo4096Ranks) {
  const std::string tokens = " --tokens 10000000 --network 25,1.5 --plots plots --json scale.json";
  ASSERT_EQ(run_ranks(2, "--weak --rows 512 --repeat 1 --operator full --operator linear" + tokens),
            0)
      << errors_;
  EXPECT_NE(output_.find("for 1e+07 tokens, 25 GB/s and 1.5 us"), output_.npos) << output_;
  const Json all = json();
  EXPECT_EQ(all.at("scaling").get<std::string>(), "weak");
  EXPECT_EQ(number(all, "rows"), 1024);
  const Json& outlook = all.at("outlook");
  EXPECT_EQ(number(outlook, "tokens"), 1e7);
  EXPECT_EQ(outlook.at("operators").size(), 4u);  // two of each kind
  const Json& points = outlook.at("points");
  EXPECT_EQ(points.size(), 4u * 13);
  for (std::size_t n = 0; n < points.size(); ++n) {
    const double ranks = number(points[n], "ranks");
    EXPECT_EQ(ranks, static_cast<double>(1 << n % 13));
    EXPECT_GT(number(points[n], "seconds"), 0);
    EXPECT_EQ(number(points[n], "bytes_a_token"),
              number(points[n], "bytes_of_a_rank") * ranks / 1e7);
    if (ranks > 1) continue;
    EXPECT_EQ(number(points[n], "efficiency"), 1);
    EXPECT_EQ(number(points[n], "bytes_of_a_rank"), 0);
  }
  // Every key and value goes to every other rank: 512 bytes.
  EXPECT_EQ(number(points[1], "bytes_a_token"), 512);
  EXPECT_NEAR(number(points[12], "bytes_a_token"), 512 * 4095.0, 512);
  for (const char* file : {"scale_time", "scale_bytes"}) {
    EXPECT_EQ(lines_of(file + std::string("_causal")), "full, causal; linear, causal; ");
    EXPECT_EQ(lines_of(file + std::string("_not_causal")), "full; linear; ");
    const std::string plot = text_of(std::string("plots/") + file + "_not_causal.svg");
    EXPECT_NE(plot.find(", not causal, by the model</text>"), plot.npos);
    EXPECT_NE(plot.find(">an operator, by the model; its marks are 1, 2, 4, ... ranks<"),
              plot.npos);
    EXPECT_EQ(plot.find("dashes: "), plot.npos);
  }
  EXPECT_FALSE(has("plots/scale_time_patterns_causal.svg"));
}

/// Main operators have separate plots, and so does each family with others; causal and non-causal
/// systems are in different plots.
TEST_F(FoveaScale, PlotsAreByFamily) {
  ASSERT_EQ(run("--rows 128 --repeat 1 --plots plots --operator all"), 0) << errors_;
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"", "full, causal; strided 128; linear, causal; FMM, causal; "},
      {"_patterns", "full, causal; strided 128; fixed 128, 8; "},
      {"_sums", "linear, causal; FMM, causal; FMM, fast weight; delta rule; Performer, causal; "},
      {"_lists", ""},
      {"_packed_rows", ""},
      {"_heads", ""},
      {"_weights", "decoding, full; "}};
  for (const auto& [family, causal] : lines) {
    EXPECT_EQ(lines_of("scale_time" + family + "_causal"), causal);
    EXPECT_EQ(has("plots/scale_bytes" + family + "_causal.svg"), !causal.empty()) << family;
  }
  EXPECT_EQ(lines_of("scale_time_sums_not_causal"), "linear; Performer; ");
  EXPECT_EQ(lines_of("scale_time_lists_not_causal"), "Smart Bird; FSAT; indexed 20; ");
  // The second of one colour is dashed, and the legend says so.
  const std::string luna = text_of("plots/scale_time_packed_rows_not_causal.svg");
  EXPECT_EQ(lines_of("scale_time_packed_rows_not_causal"),
            "Linformer 128; Nystroem 64; Luna 64, pack; Luna 64, unpack; ");
  EXPECT_EQ(count(luna, "stroke-dasharray"), 2);
  EXPECT_EQ(count(luna, ">dashes: a further variant of the one in that colour<"), 1);
}

TEST_F(FoveaScale, PlotsCanBeRedrawnFromJson) {
  for (const std::string pass : {"", " --backward"}) {
    ASSERT_EQ(run("--rows 128 --heads 2 --repeat 1 --operator all --tokens 3000000 --network 25,1.5"
                  " --json scale.json --plots plots" +
                  pass),
              0)
        << errors_;
    ASSERT_EQ(run("--draw scale.json --plots again"), 0) << errors_;
    EXPECT_EQ(output_, "");
    EXPECT_TRUE(has("again/scale_bytes_weights_not_causal.svg"));
    EXPECT_EQ(shell("diff -r plots again"), 0) << output_;
    shell("rm -r plots again");
  }
  ASSERT_EQ(run("--memory --rows 256 --operator linear --json memory.json"), 0) << errors_;
  EXPECT_EQ(run("--draw memory.json"), 1);
  EXPECT_NE(
      errors_.find("memory.json: is not a result of fovea_scale: [json.exception.out_of_range.403] "
                   "key 'outlook' not found"),
      errors_.npos)
      << errors_;
  put("other.json", R"({"program": "fovea_lengths"})");
  EXPECT_EQ(run("--draw other.json"), 1);
  EXPECT_NE(errors_.find("other.json: is not a result of fovea_scale"), errors_.npos) << errors_;
  EXPECT_FALSE(has("out"));
}

/// One head of a causal far field is a chain: two ranks take as long as one, so half is of use.
TEST_F(FoveaScale, ReportsWhereMoreRanksStopHelping) {
  ASSERT_EQ(run(std::string(kSmall) + " --operator linear --tokens 1000000 --json scale.json"), 0)
      << errors_;
  const Json all = json();
  EXPECT_EQ(number(all, "ranks"), 1);
  const Json& operators = all.at("outlook").at("operators");
  ASSERT_EQ(operators.size(), 2u);
  const double half = number(operators[1], "ranks_of_half_efficiency");
  EXPECT_EQ(operators[1].at("operator").get<std::string>(), "linear, causal");
  EXPECT_TRUE(half == 4 || half == 8) << half;  // for two heads
}

TEST_F(FoveaScale, MemoryIsMeasured) {
  ASSERT_EQ(run_ranks(2, "--memory --rows 9000 --operator 'full, causal' --json scale.json"), 0)
      << errors_;
  const Json results = json().at("results");
  ASSERT_EQ(results.size(), 1u);
  const double own = number(results[0], "own_keys_and_values_bytes");
  EXPECT_EQ(own, 4500 * 512);
  EXPECT_EQ(number(results[0], "own_and_two_blocks_bytes"), own + 2 * 2048 * 512);
  EXPECT_GT(number(results[0], "peak_bytes"), own);
}

TEST_F(FoveaScale, RefusesUnknownArguments) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--rows x", "--rows: 'x' is not a whole number from 1 to 1000000000000"},
      {"--rows 1", "--rows: at least two rows per rank are required"},
      {"--tokens -1", "--tokens: '-1' is not a whole number from 1 to 1000000000000"},
      {"--network 3,2,1", "--network: '3,2,1' is not two numbers"},
      {"--operator no", "--operator: none begins with 'no'"},
      {"--operator decoding --backward",
       "--operator: none with a backward pass begins with 'decoding'"},
      {"--operator Nys --rows 1100", "--rows: Nystroem 64: N must be a multiple of 64"},
      {"--rows", "--rows needs a value"},
      {"--row 3", "The following arguments were not expected: 3 --row"}};
  for (const std::vector<std::string>& call : wrong) {
    EXPECT_EQ(run(call[0]), 2) << call[0];
    EXPECT_NE(errors_.find("fovea_scale: " + call[1] + "\n"), errors_.npos) << errors_;
  }
  EXPECT_EQ(run("--json no/where.json"), 1);
  EXPECT_NE(errors_.find("fovea_scale: no/where.json"), errors_.npos) << errors_;
  EXPECT_EQ(run("--help"), 0);
  EXPECT_EQ(output_.find("fovea_scale: compares passes over a sequence"), 0u) << output_;
}

}  // namespace fovea_test::bench_fovea_scale
