// SPDX-License-Identifier: MIT
// fovea_test(LINK fovea_bench_io)
// Cells of fovea_compare: a row that cannot run is marked without affecting others, and only
// comparable rows are compared.
#include "bench/measure/compare_measure.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/io/compare_json.hpp"

namespace fovea_test::bench_measure_compare_measure {

using bench::AllInputs;
using bench::Entry;
using bench::HeadTensors;
using bench::Index;
using bench::Pass;
using bench::Prepared;
using bench::Row;
using bench::View;
using fovea::ThreadPool;

constexpr Index kRows = 4;

HeadTensors ones() {
  const fovea::Shape shape = {1, 2, kRows, 3};
  const std::vector<float> data(24, 1.0f);
  return {shape, shape, shape, data, data, data};
}

/// An operator that writes one number everywhere.
Entry constant(const std::string& op, bool causal, float number, Pass pass = Pass::forward) {
  Entry entry;
  entry.names = {.op = op, .label = op + (causal ? ", causal" : ""), .pass = pass};
  entry.causal = causal;
  entry.attended_pairs = [](const bench::AttentionShape&) { return Index{1}; };
  entry.f32.workspace_bytes = [](const bench::AttentionShape&, Index) { return Index{0}; };
  entry.f32.prepare = [number](const AllInputs<float>&, const View<float>& out) {
    const auto write = [=](ThreadPool&) { std::fill_n(out.data(), out.size(), number); };
    return Prepared{write, [](Index) { return bench::Error{}; }};
  };
  return entry;
}

/// One that throws at the step of that name.
template <class E>
Entry throwing(const std::string& step, const E& error) {
  Entry entry = constant("thrower", false, 1);
  const auto fail_at = [=](const char* here) {
    if (step == here) throw error;
  };
  entry.f32.workspace_bytes = [=](const bench::AttentionShape&, Index) {
    fail_at("scratch");
    return Index{0};
  };
  entry.f32.prepare = [=](const AllInputs<float>&, const View<float>&) {
    fail_at("prepare");
    return Prepared{[=](ThreadPool&) { fail_at("run"); },
                    [=](Index) {
                      fail_at("error");
                      return bench::Error{};
                    }};
  };
  return entry;
}

Row measured(const Entry& entry, std::vector<float>* kept = nullptr) {
  const HeadTensors tensors = ones();
  ThreadPool pool(1);
  std::vector<float> out;
  Row row = bench::measure(entry, tensors, kRows, 1, pool, out);
  if (kept != nullptr) *kept = out;
  return row;
}

TEST(Measure, MarksRowsThatThrow) {
  for (const char* step : {"scratch", "prepare", "run", "error"}) {
    const Row row = measured(throwing(step, std::runtime_error("f2 is too wide")));
    EXPECT_TRUE(row.failed) << step;
    EXPECT_EQ(row.skipped, "f2 is too wide") << step;
    EXPECT_EQ(row.names.label, "thrower");
    EXPECT_EQ(row.n, kRows);
  }
  EXPECT_EQ(measured(throwing("run", std::bad_alloc())).skipped, "not enough memory");
}

TEST(Measure, SkipsRowsThatCannotRun) {
  Entry entry = throwing("prepare", std::runtime_error("tried"));
  entry.obstacle = [](const bench::AttentionShape& s) {
    return s.value_width == 3 ? std::string("v is too wide") : std::string();
  };
  Row row = measured(entry);
  EXPECT_FALSE(row.failed);
  EXPECT_EQ(row.skipped, "v is too wide");
  entry.obstacle = {};
  entry.f32.workspace_bytes = [](const bench::AttentionShape&, Index) { return Index{1} << 62; };
  row = measured(entry);
  EXPECT_FALSE(row.failed);
  EXPECT_EQ(row.skipped, "its scratch is larger than the free memory: 4096 PiB");
}

TEST(Measure, WritesRowsThatDidNotRun) {
  bench::Comparison run;
  run.rows = {measured(throwing("run", std::runtime_error("f2 is too wide")))};
  run.rows.push_back(run.rows[0]);
  run.rows[1].failed = false;
  const std::string json = to_json(run);
  EXPECT_NE(json.find("\"failed\": \"f2 is too wide\""), json.npos) << json;
  EXPECT_NE(json.find("\"skipped\": \"f2 is too wide\""), json.npos) << json;
}

TEST(Yardsticks, CompareLikeWithLike) {
  bench::Yardsticks<float> full;
  const auto compared = [&](const Entry& entry, double seconds) {
    std::vector<float> out;
    Row row = measured(entry, &out);
    row.seconds = seconds;
    full.compare(entry, out, row);
    return row;
  };
  // Before full attention of its kind, nothing is compared.
  EXPECT_FALSE(compared(constant("strided", true, 5), 1).difference);
  EXPECT_EQ(compared(constant("full", false, 2), 8).difference, 0);
  EXPECT_FALSE(compared(constant("strided", true, 5), 1).difference);
  const Row causal_full = compared(constant("full", true, 4), 6);
  EXPECT_EQ(causal_full.difference, 0);
  EXPECT_EQ(causal_full.speed_up, 1);
  EXPECT_EQ(causal_full.yardstick, "full, causal");

  const Row strided = compared(constant("strided", true, 5), 2);
  EXPECT_EQ(strided.yardstick, "full, causal");
  EXPECT_EQ(strided.difference, 0.25);
  EXPECT_EQ(strided.speed_up, 3);
  const Row local = compared(constant("local", false, 5), 2);
  EXPECT_EQ(local.yardstick, "full");
  EXPECT_EQ(local.difference, 1.5);
  EXPECT_EQ(local.speed_up, 4);
  EXPECT_EQ(compared(constant("strided", true, 5, Pass::dense_mask), 2).yardstick, "full, causal");
  EXPECT_FALSE(compared(constant("strided", true, 5, Pass::training), 2).difference);
  EXPECT_FALSE(compared(constant("strided", true, 5, Pass::decode), 2).speed_up);
}

}  // namespace fovea_test::bench_measure_compare_measure
