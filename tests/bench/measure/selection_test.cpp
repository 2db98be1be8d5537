// SPDX-License-Identifier: MIT
// The selection of rows, and where an operator becomes faster than full attention.
#include "bench/measure/selection.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fovea_test::bench_measure_selection {

using bench::CompareArguments;
using bench::Entry;
using bench::Index;
using bench::Pass;
using bench::Row;

Entry entry(const char* op, const char* label, bool causal, Pass pass = Pass::forward) {
  Entry made;
  made.names = {.op = op, .label = label, .pass = pass};
  made.causal = causal;
  return made;
}

std::vector<Entry> entries() {
  return {entry("full", "full", false),
          entry("full", "full, causal", true),
          entry("full", "full, decoding", false, Pass::decode),
          entry("local", "local, 128", false),
          entry("strided", "strided", true),
          entry("strided", "strided, training", true, Pass::training),
          entry("strided", "", true)};
}

std::vector<std::string> labels(const CompareArguments& arguments) {
  std::vector<std::string> names;
  for (const Entry& e : bench::selected(entries(), arguments)) names.push_back(e.names.label);
  return names;
}

using Labels = std::vector<std::string>;

TEST(Selection, SelectsAllWithALabel) { EXPECT_EQ(labels({}).size(), 6u); }

TEST(Selection, KeepsFullAttentionWithTheSelection) {
  CompareArguments arguments;
  arguments.operators = {"strided"};
  EXPECT_EQ(labels(arguments), (Labels{"full", "full, causal", "strided", "strided, training"}));
  arguments.operators = {"strided, training"};
  EXPECT_EQ(labels(arguments), (Labels{"full", "full, causal", "strided, training"}));
  arguments.causal = true;
  EXPECT_EQ(labels(arguments), (Labels{"full, causal", "strided, training"}));
  arguments.operators = {};
  EXPECT_EQ(labels(arguments),
            (Labels{"full, causal", "full, decoding", "strided", "strided, training"}));
}

TEST(Selection, CausalTrainingStepsAreThoseOfCausalOperators) {
  std::vector<Entry> all = entries();
  all.push_back(entry("reformer", "Reformer, training", false, Pass::training));
  CompareArguments arguments;
  arguments.causal = true;
  EXPECT_EQ(bench::selected(all, arguments).size(), 4u);
}

TEST(Selection, AdvisesOnForwardPassesOfTheRequestedKind) {
  std::vector<Entry> all = entries();
  all.push_back(entry("naive_eigen", "Eigen", false));
  all.push_back(entry("strided", "strided, mask", true, Pass::dense_mask));
  CompareArguments arguments;
  arguments.advise = true;
  for (const bool causal : {false, true}) {
    arguments.causal = causal;
    const std::vector<Entry> kept = bench::selected(all, arguments);
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_EQ(kept[0].names.label, causal ? "full, causal" : "full");
    EXPECT_EQ(kept[1].names.label, causal ? "strided" : "local, 128");
  }
}

TEST(Selection, AnUnknownNameListsTheKnownOnes) {
  CompareArguments arguments;
  arguments.operators = {"strided", "striped"};
  try {
    bench::selected(entries(), arguments);
    FAIL();
  } catch (const bench::ArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "--operators: 'striped' is not known; the operators are full, local, strided");
  }
}

Row row(const char* op, const char* label, Index n, std::optional<double> speed_up) {
  Row made;
  made.names = {.op = op, .label = label};
  made.n = n;
  made.speed_up = speed_up;
  return made;
}

TEST(SixteenBits, SelectSupportedRowsAndReportTheOthers) {
  std::vector<Entry> all = entries();
  all.push_back(entry("sinkhorn", "Sinkhorn", false));
  all.push_back(entry("fsat", "FSAT", false));
  all.push_back(entry("naive_eigen", "Eigen", false));
  all.push_back(entry("luna", "Luna", false));
  const auto pass_of = [](Index bytes) {
    bench::Runner<float> runner;
    runner.prepare = [](const auto&, const auto&) { return bench::Prepared{}; };
    runner.workspace_bytes = [=](const auto&, Index) { return bytes; };
    return runner;
  };
  for (Entry& e : all) e.f32 = pass_of(4);
  for (const std::size_t n : {0u, 3u}) {
    all[n].f16 = pass_of(2);
    all[n].bf16 = pass_of(3);
  }
  for (const bench::TensorType type : {bench::TensorType::f16, bench::TensorType::bf16}) {
    std::vector<Entry> kept = all;
    EXPECT_EQ(bench::keep_16_bits(kept, type),
              "full, causal; full, decoding; strided; ; Sinkhorn; Luna (these operators exist for "
              "float and double only) | strided, training (gradients exist for float and double "
              "only) | FSAT (Fourier transforms exist for float and double only) | Eigen (the "
              "baselines exist for float and double only)");
    ASSERT_EQ(kept.size(), 2u);
    EXPECT_EQ(kept[1].names.label, "local, 128");
    EXPECT_EQ(kept[1].f32.workspace_bytes({}, 1), type == bench::TensorType::f16 ? 2 : 3);
    EXPECT_EQ(bench::keep_16_bits(kept = {all[0]}, type), "");
  }
}

TEST(Overtakings, AreWhereAnOperatorBecomesFaster) {
  const auto all = bench::overtakings(
      {row("full", "full, causal", 512, 2.0), row("a", "a", 512, 1.5), row("b", "b", 512, 1.2),
       row("c", "c", 512, 0.5), row("a", "a", 1024, 3.0), row("b", "b", 1024, 0.9),
       row("c", "c", 1024, 0.8), row("b", "b", 2048, 1.1), row("c", "c", 2048, {}),
       row("d", "d", 2048, {})});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].from, 512);
  EXPECT_EQ(all[1].from, 2048);
  EXPECT_FALSE(all[2].from);
  EXPECT_EQ(all[2].longest, 1024);
}

Row far_row(const char* label, bool causal, Index n, double seconds, double distance) {
  Row made = row("a", label, n, 1);
  made.causal = causal;
  made.seconds = seconds;
  made.difference = distance;
  return made;
}

TEST(Fastest, AreParetoOptimal) {
  const std::vector<Row> rows = {
      far_row("full", true, 64, 9, 0),        far_row("same", true, 64, 8, 1e-7),
      far_row("slower", true, 64, 7, 0.5),    far_row("near", true, 64, 4, 0.25),
      far_row("farther", true, 64, 2, 1.5),   far_row("scale", true, 64, 1, 900),
      far_row("other kind", false, 64, 1, 0), far_row("shorter", true, 32, 1, 0)};
  EXPECT_EQ(bench::longest_with_distance(rows, true), 64);
  EXPECT_EQ(bench::longest_with_distance({}, true), 0);
  std::vector<std::string> names;
  for (const Row* const one : bench::fastest_at_distances(rows, true, 64)) {
    names.push_back(one->names.label);
  }
  EXPECT_EQ(names, (Labels{"farther", "near", "same"}));
}

}  // namespace fovea_test::bench_measure_selection
