// SPDX-License-Identifier: MIT
// The program as users run it, on 2 and 4 ranks: the bytes of its model are those that were sent,
// its JSON and plots have what they say, and it refuses what it does not understand. No test looks
// at a time.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "structure/json.hpp"
#include "support/run_program.hpp"

namespace fovea_test::bench_fovea_scale {

// Halves and quarters of it end inside of segments and blocks of every size.
constexpr const char* kSmall = "--rows 1100 --heads 2 --repeat 1";
constexpr std::size_t kOperators = 10;

class FoveaScale : public RunProgram {
 protected:
  FoveaScale() : RunProgram(FOVEA_SCALE) {}

  /// Returns the exit status of so many ranks of the program.
  int run_ranks(int ranks, const std::string& arguments) {
    return shell(std::string(FOVEA_MPIRUN) + " " + std::to_string(ranks) + " '" FOVEA_SCALE "' " +
                 arguments);
  }

  Json json() const { return JsonReader::read(text_of("scale.json")); }
};

const Json& member(const Json& of, const std::string& name) {
  static const Json none;
  const Json* const found = of.find(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? none : *found;
}

double number(const Json& of, const std::string& name) {
  return std::strtod(member(of, name).text.c_str(), nullptr);
}

TEST_F(FoveaScale, BytesOfTheModelAreThoseThatWereSent) {
  for (const int ranks : {2, 4}) {
    for (const std::string pass : {"forward", "backward"}) {
      const std::string flag = pass == "forward" ? "" : " --backward";
      ASSERT_EQ(run_ranks(ranks, kSmall + (flag + " --json scale.json")), 0) << errors_;
      const Json all = json();
      EXPECT_EQ(member(all, "pass").text, pass);
      EXPECT_EQ(number(all, "ranks"), ranks);
      const std::vector<Json>& results = member(all, "results").items;
      EXPECT_EQ(results.size(), kOperators);
      std::size_t exact = 0;
      for (const Json& result : results) {
        const double sent = number(result, "bytes_sent");
        const double modelled = number(result, "bytes_sent_in_model");
        const std::string what = member(result, "operator").text + ", " + pass + ", on " +
                                 std::to_string(ranks) + " ranks";
        if (member(result, "bytes_are").text == "exact") {
          EXPECT_EQ(sent, modelled) << what;
          ++exact;
        } else {
          // The keys that are chosen do not lie quite evenly.
          EXPECT_LT(sent, 1.15 * modelled) << what;
          EXPECT_GT(sent, 0.6 * modelled) << what;
        }
      }
      EXPECT_EQ(exact, kOperators - 3);
    }
  }
}

TEST_F(FoveaScale, TheModelIsDrawnOutTo4096Ranks) {
  const std::string tokens = " --tokens 10000000 --network 25,1.5 --plots plots --json scale.json";
  ASSERT_EQ(run_ranks(2, "--weak --rows 512 --repeat 1 --operator full --operator linear" + tokens),
            0)
      << errors_;
  EXPECT_NE(output_.find("for 1e+07 tokens, 25 GB/s and 1.5 us"), output_.npos) << output_;
  const Json all = json();
  EXPECT_EQ(member(all, "scaling").text, "weak");
  EXPECT_EQ(number(all, "rows"), 1024);
  const Json& outlook = member(all, "outlook");
  EXPECT_EQ(number(outlook, "tokens"), 1e7);
  EXPECT_EQ(member(outlook, "operators").items.size(), 4u);  // two of each kind
  const std::vector<Json>& points = member(outlook, "points").items;
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
  for (const char* file : {"plots/scale_time.svg", "plots/scale_bytes.svg"}) {
    const std::string plot = text_of(file);
    EXPECT_EQ(plot.find("<svg "), 0u) << file;
    EXPECT_EQ(count(plot, "<polyline "), 4) << file;
  }
}

/// One head of a causal far field is a chain: two ranks take as long as one, so half is of use.
TEST_F(FoveaScale, ItSaysWhereMoreRanksStopHelping) {
  ASSERT_EQ(run(std::string(kSmall) + " --operator linear --tokens 1000000 --json scale.json"), 0)
      << errors_;
  const Json all = json();
  EXPECT_EQ(number(all, "ranks"), 1);
  const std::vector<Json>& operators = member(member(all, "outlook"), "operators").items;
  ASSERT_EQ(operators.size(), 2u);
  const double half = number(operators[1], "ranks_of_half_efficiency");
  EXPECT_EQ(member(operators[1], "operator").text, "linear, causal");
  EXPECT_TRUE(half == 4 || half == 8) << half;  // for two heads
}

TEST_F(FoveaScale, MemoryIsMeasured) {
  ASSERT_EQ(run_ranks(2, "--memory --rows 9000 --operator 'full, causal' --json scale.json"), 0)
      << errors_;
  const std::vector<Json> results = member(json(), "results").items;
  ASSERT_EQ(results.size(), 1u);
  const double own = number(results[0], "own_keys_and_values_bytes");
  EXPECT_EQ(own, 4500 * 512);
  EXPECT_EQ(number(results[0], "own_and_two_blocks_bytes"), own + 2 * 2048 * 512);
  EXPECT_GT(number(results[0], "peak_bytes"), own);
}

TEST_F(FoveaScale, RefusesWhatItDoesNotUnderstand) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--rows x", "--rows: 'x' is no whole number from 1 on"},
      {"--rows 1", "--rows: two rows for each rank are the least"},
      {"--tokens -1", "--tokens: '-1' is no whole number from 1 on"},
      {"--network 3,2,1", "--network: '3,2,1' is not two numbers"},
      {"--operator no", "--operator: none begins with 'no'"},
      {"--rows", "'--rows' is not understood; see --help"}};
  for (const std::vector<std::string>& call : wrong) {
    EXPECT_EQ(run(call[0]), 2) << call[0];
    EXPECT_NE(errors_.find("fovea_scale: " + call[1] + "\n"), errors_.npos) << errors_;
  }
  EXPECT_EQ(run("--json no/where.json"), 1);
  EXPECT_NE(errors_.find("fovea_scale: no/where.json"), errors_.npos) << errors_;
  EXPECT_EQ(run("--help"), 0);
  EXPECT_EQ(output_.find("fovea_scale: passes over a sequence"), 0u) << output_;
}

}  // namespace fovea_test::bench_fovea_scale
