// SPDX-License-Identifier: MIT
// fovea_test(LINK fovea_bench_io)
// Another run is read back from its JSON, and files that are not runs are refused by name.
#include "bench/io/compare_against.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fovea_test::bench_io_compare_against {

using bench::Comparison;
using bench::Row;

std::string written(const std::string& text) {
  const std::string file = testing::TempDir() + "/against.json";
  fovea::write_file(file, text);
  return file;
}

Row row(const char* label, double seconds, bench::Pass pass = bench::Pass::forward) {
  Row made;
  made.names = {.op = "local", .label = label, .pass = pass};
  made.n = 512;
  made.seconds = seconds;
  made.workspace_bytes = 77;
  return made;
}

TEST(ReadRun, ReadsWhatWasWritten) {
  Comparison run;
  run.machine = {{"cpu", "a processor"}};
  run.rows = {row("local", 0.25), row("local", 0.5, bench::Pass::training), row("skipped", 1)};
  run.rows[2].skipped = "too long";
  const bench::OtherRun other = bench::read_run(written(to_json(run)));
  ASSERT_EQ(other.rows.size(), 2u);
  EXPECT_EQ(other.rows[0].names.op, "local");
  EXPECT_EQ(other.rows[0].workspace_bytes, 77);
  EXPECT_EQ(other.machine, "a processor");
  EXPECT_EQ(other.seconds(run.rows[0]), 0.25);
  EXPECT_EQ(other.seconds(run.rows[1]), 0.5);
  EXPECT_FALSE(other.seconds(run.rows[2]));
}

TEST(ReadComparison, HasTheDataOfPlotsAndReport) {
  Comparison run;
  run.command = {"compare", "--causal"};
  run.machine = {{"cpu", "a processor"}, {"isa_level", "v3"}};
  run.input = "a \"text\"";
  run.shape.query_heads = 4;
  run.shape.key_heads = 2;
  run.shape.width = run.shape.value_width = 8;
  run.arguments.type = bench::TensorType::bf16;
  run.arguments.threads = 3;
  run.left_out = "some";
  run.rows = {row("local", 0.25), row("failed", 1)};
  run.rows[0].causal = true;
  run.rows[0].yardstick = "full, causal";
  run.rows[0].speed_up = 2;
  run.rows[0].difference = 0.125;
  run.rows[0].compared_rows = 64;
  run.rows[1].skipped = "it threw";
  run.rows[1].failed = true;
  run.rows[1].n = 64;
  const Comparison read = bench::read_comparison(written(to_json(run)));
  EXPECT_EQ(subtitle_of(read), subtitle_of(run));
  EXPECT_EQ(read.command, run.command);
  EXPECT_EQ(read.machine, run.machine);
  EXPECT_EQ(read.input, run.input);
  EXPECT_EQ(read.left_out, "some");
  EXPECT_EQ(read.arguments.lengths, (std::vector<bench::Index>{64, 512}));
  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_TRUE(read.rows[0].causal);
  EXPECT_EQ(read.rows[0].yardstick, "full, causal");
  EXPECT_EQ(read.rows[0].speed_up, 2);
  EXPECT_EQ(read.rows[0].difference, 0.125);
  EXPECT_EQ(read.rows[0].compared_rows, 64);
  EXPECT_EQ(read.rows[0].seconds, 0.25);
  EXPECT_EQ(read.rows[1].skipped, "it threw");
  EXPECT_TRUE(read.rows[1].failed);
}

std::string refusal_of(const std::string& text) {
  try {
    bench::read_run(written(text));
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ReadRun, RefusesInvalidOnes) {
  for (const char* text :
       {"", "{", "[]", "{\"program\": \"fovea_bench\"}", "{\"program\": \"fovea_compare\"}",
        R"({"program": "fovea_compare", "results": [{"milliseconds": 1}]})",
        R"({"program": "fovea_compare", "results": [{"milliseconds": 0, "operator": "a",
            "label": "a", "pass": "forward", "n": 1, "workspace_bytes": 1}]})"}) {
    const std::string message = refusal_of(text);
    EXPECT_NE(message.find("against.json: is not a result of fovea_compare: "), message.npos)
        << text << ": " << message;
  }
  EXPECT_THROW(bench::read_run("/nowhere/x.json"), std::runtime_error);
}

}  // namespace fovea_test::bench_io_compare_against
