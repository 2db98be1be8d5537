// SPDX-License-Identifier: MIT
// fovea_test(ALONE FULL PROGRAM fovea_compare)
// The program as users run it: real tensors with grouped heads, input and paths that it refuses,
// its output without a terminal, and its report in a browser.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/head_files.hpp"
#include "bench/io/gaussian.hpp"
#include "support/run_program.hpp"

namespace fovea_test::bench_fovea_compare {

namespace fs = std::filesystem;

constexpr Index kRows = 64;
constexpr Index kWidth = 8;

class FoveaCompare : public RunProgram {
 protected:
  FoveaCompare() : RunProgram(FOVEA_PROGRAM) {}

  /// q of 4 heads, k and v of 2.
  void write_tensors(Index value_width, float first_of_k) const {
    const auto tensor = [](std::uint32_t stream, Index heads, Index width) {
      return bench::gaussians<float>(1, stream, heads * kRows * width);
    };
    write_heads(folder_ / "q.npy", 4, kWidth, tensor(0, 4, kWidth));
    std::vector<float> k = tensor(1, 2, kWidth);
    k[0] = first_of_k;
    write_heads(folder_ / "k.npy", 2, kWidth, k);
    write_heads(folder_ / "v.npy", 2, value_width, tensor(2, 2, value_width));
  }

  std::string json() const { return text_of("out/compare.json"); }
};

// Rows of the table, without those that need FFTW.
constexpr Index kOperators = 56;

/// The rows that need FFTW, in what the program wrote.
Index with_fftw(const std::string& all) {
  return count(all, "\"operator\": \"fsat\"") + count(all, "\"operator\": \"mixer\"");
}

constexpr const char* kCompare = "--repeat 1 --qkv .";

/// The text on stderr without the note that the machine was busy.
std::string without_notes(const std::string& errors) {
  std::string rest;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("note: ")) rest += line + "\n";
  }
  return rest;
}

TEST_F(FoveaCompare, GroupedHeadsAreRightInEveryRow) {
  write_tensors(kWidth, 1);
  EXPECT_EQ(run(kCompare), 0) << output_ << errors_;
  EXPECT_EQ(without_notes(errors_), "");  // no progress without a terminal
  EXPECT_NE(output_.find("4 heads on 2 key heads, D = 8"), output_.npos) << output_;
  for (const char* mark : {"WRONG", "FAILED", "skipped", " nan", " inf"}) {
    EXPECT_EQ(output_.find(mark), output_.npos) << output_;
  }
  const std::string all = json();
  EXPECT_EQ(count(all, "\"label\": "), kOperators + with_fftw(all));
  EXPECT_EQ(count(all, "\"label\": "), count(all, "\"error_ratio\": "));
  EXPECT_EQ(count(all, "\"pass\": \"training\""), 15 + count(all, "\"label\": \"FSAT, training\""));
  EXPECT_EQ(count(all, "\"full\": \"full, causal\""), 14);  // of the rows that are causal
  EXPECT_EQ(count(all, "\"commit\": "), 1);
  // No files except those that the output names.
  for (const auto& entry : fs::directory_iterator(folder_ / "out")) {
    const std::string extension = entry.path().extension().string();
    EXPECT_TRUE(extension == ".json" || extension == ".svg" || extension == ".html")
        << entry.path();
  }
  for (const char* file : {"distance_causal", "distance_not_causal", "time_causal", "time_decoding",
                           "memory_training_not_causal"}) {
    EXPECT_NE(output_.find("out/" + std::string(file) + ".svg: "), output_.npos) << file;
    EXPECT_EQ(text_of("out/" + std::string(file) + ".svg").find("<svg "), 0u) << file;
  }
  for (const char* kind : {"causal", "not causal"}) {
    EXPECT_NE(output_.find("\nfastest within each distance from full attention, " +
                           std::string(kind) + ", N = 64:\n  "),
              output_.npos)
        << output_;
  }
  // The question comes first.
  const std::string page = text_of("out/report.html");
  EXPECT_LT(page.find("<h2>Which operator</h2>"), page.find("<svg "));
  EXPECT_LT(page.find("Distance from full attention against time"), page.find("<h2>Time</h2>"));
  EXPECT_NE(output_.find("\nfaster than full attention:\n  local, 128 + 128: "), output_.npos);
}

constexpr const char* kFew = "--repeat 1 --qkv . --operators local,strided";

TEST_F(FoveaCompare, RunsSelectedRowsAndOverlaysAnotherRun) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(run(kFew + std::string(" --causal --lengths 16,64 --json first.json")), 0) << errors_;
  const std::string first = text_of("first.json");
  EXPECT_EQ(count(first, "\"operator\": \"full\""), 2);  // causal full attention alone
  EXPECT_EQ(count(first, "\"operator\": \"linear\""), 0);
  EXPECT_EQ(count(first, "\"n\": 16,"), count(first, "\"n\": 64,"));
  EXPECT_EQ(first.find("against_milliseconds"), first.npos);

  ASSERT_EQ(run(kFew + std::string(" --lengths 64 --against first.json")), 0) << errors_;
  EXPECT_EQ(count(json(), "\"against_milliseconds\": "), count(first, "\"n\": 64,"));
  EXPECT_NE(output_.find("its time"), output_.npos);
  const std::string plot = text_of("out/time_causal.svg");
  EXPECT_NE(plot.find("dotted: "), plot.npos);
  // Full, local, strided attention, and that with a mask; and the legend.
  EXPECT_EQ(count(plot, "stroke-dasharray=\"1.5 3\""), 5) << plot;
  // Of this run alone are the rows that are not causal.
  EXPECT_EQ(text_of("out/time_not_causal.svg").find("dotted: "), plot.npos);

  EXPECT_EQ(run(kFew + std::string(" --against q.npy")), 1);
  EXPECT_EQ(errors_.find("fovea_compare: q.npy: is not a result of fovea_compare: "), 0u)
      << errors_;
}

/// Every operator that takes them, and one line of what does not.
TEST_F(FoveaCompare, TensorsOf16BitsAreRightInEveryRow) {
  write_tensors(kWidth, 1);
  for (const std::string type : {"f16", "bf16"}) {
    ASSERT_EQ(run(kCompare + (" --dtype " + type)), 0) << output_ << errors_;
    EXPECT_EQ(without_notes(errors_), "");
    EXPECT_NE(output_.find(type == "f16" ? "type: float16\n" : "type: bfloat16\n"), output_.npos);
    for (const char* mark : {"WRONG", "FAILED", "skipped", " nan", " inf"}) {
      EXPECT_EQ(output_.find(mark), output_.npos) << output_;
    }
    const std::string all = json();
    EXPECT_EQ(count(all, "\"label\": "), 29);
    EXPECT_EQ(count(all, "\"error_ratio\": "), 29);
    EXPECT_EQ(count(all, "\"pass\": \"decode\""), 10);
    EXPECT_EQ(count(all, "\"pass\": \"training\""), 0);
    EXPECT_EQ(count(output_, "\nomitted, no 16-bit support: full, causal, training; "), 1);
    for (const char* left : {"Sinkhorn", "performer", "Synthesizer, dense", "Eigen, naive"}) {
      EXPECT_EQ(count(all, "\"label\": \"" + std::string(left) + "\""), 0);
      EXPECT_NE(output_.find(left), output_.npos);
      EXPECT_NE(all.find(left, all.find("\"left_out\": ")), all.npos);
      EXPECT_NE(text_of("out/report.html").find(left), std::string::npos);
    }
    // A window of all keys has the bits of full attention on the same numbers.
    const std::size_t window = all.find("\"label\": \"local, 128 + 128\"");
    const std::size_t distance = all.find("\"relative_difference_from_full\": ", window);
    EXPECT_EQ(all.substr(distance, 36).find("\"relative_difference_from_full\": 0"), 0u);
  }
  ASSERT_EQ(run(kCompare + std::string(" --dtype bf16 --operators sinkhorn")), 0) << errors_;
  EXPECT_NE(output_.find("omitted, no 16-bit support: Sinkhorn (these operators exist for float "
                         "and double only) | "
                         "Sinkhorn, training (gradients exist for float and double only)\n"),
            output_.npos)
      << output_;
}

/// The labels of a table of advice, in its order.
std::vector<std::string> advised(const std::string& output) {
  std::vector<std::string> labels;
  std::istringstream lines(output.substr(output.find("\noperator ") + 1));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && !line.starts_with("omitted: ") &&
         !line.starts_with("speed-up ")) {
    labels.push_back(line.substr(0, line.find("  ")));
  }
  return labels;
}

TEST_F(FoveaCompare, AdvisesForGivenSizes) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(run("--advise --qkv . --repeat 1 --causal --lengths 160 --heads 6"), 0) << errors_;
  EXPECT_NE(
      output_.find("input: q, k, v of ., 1x4x64x8, of which 6 heads (repeated), rows repeated "
                   "to 160\n6 heads on 3 key heads, D = 8, "),
      output_.npos)
      << output_;
  EXPECT_NE(output_.find("\nN = 160, causal, fastest first\noperator "), output_.npos) << output_;
  // By time, each once, and all of them are in the JSON.
  std::vector<double> times;
  for (const std::string& label : advised(output_)) {
    const std::string all = json();
    const std::size_t row = all.find("\"label\": \"" + label + "\"");
    ASSERT_NE(row, all.npos) << label;
    const std::string key = "\"milliseconds\": ";
    times.push_back(std::stod(all.substr(all.find(key, row) + key.size())));
  }
  EXPECT_EQ(times.size(), 11u) << output_;
  EXPECT_TRUE(std::ranges::is_sorted(times)) << output_;
  EXPECT_EQ(count(json(), "\"relative_difference_from_full\": "), 11);
  EXPECT_EQ(count(json(), "\"causal\": false"), 0);
  EXPECT_EQ(count(output_, "\n* no other operator is both faster and nearer"), 1);
  EXPECT_TRUE(has("out/report.html"));
  EXPECT_TRUE(has("out/distance_causal.svg"));
  EXPECT_FALSE(has("out/time_not_causal.svg"));
}

TEST_F(FoveaCompare, AdviceForAnotherWidthEmbedsTheSources) {
  ASSERT_EQ(run("--advise --repeat 1 --lengths 64 --heads 2 --width 16 --operators local"), 0)
      << errors_;
  EXPECT_NE(output_.find("input: the sources of fovea, "), output_.npos) << output_;
  EXPECT_NE(output_.find(", embedded with random tables, since the trained model's heads have "
                         "width 64\n2 heads, D = 16, "),
            output_.npos)
      << output_;
  EXPECT_EQ(advised(output_).size(), 2u);
  write_tensors(kWidth, 1);
  EXPECT_EQ(run("--advise --qkv . --width 16"), 1);
  EXPECT_EQ(errors_, "fovea_compare: .: has width 8; --width asks for 16\n");
  EXPECT_EQ(run("--advise --lengths 16777216 --heads 1024"), 1);
  EXPECT_NE(errors_.find("more than the free memory; use shorter --lengths"), errors_.npos);
  EXPECT_EQ(run("--advise --heads none"), 2);
  EXPECT_EQ(errors_, "fovea_compare: --heads: 'none' is not a whole number from 1 to 1024\n");
}

TEST_F(FoveaCompare, PlotsARunFromItsJson) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(run(kFew), 0) << errors_;
  ASSERT_EQ(run("--draw out/compare.json --plots again"), 0) << errors_;
  for (const char* file : {"distance_causal.svg", "time_causal.svg", "memory_decoding.svg"}) {
    EXPECT_EQ(text_of("again/" + std::string(file)), text_of("out/" + std::string(file))) << file;
  }
  EXPECT_NE(text_of("again/report.html").find("<h2>Which operator</h2>"), std::string::npos);
  EXPECT_EQ(run("--draw q.npy --plots none"), 1);
  EXPECT_EQ(errors_.find("fovea_compare: q.npy: is not a result of fovea_compare: "), 0u)
      << errors_;
  EXPECT_FALSE(has("none"));
}

TEST_F(FoveaCompare, ATypeThatOverflowsIsRefused) {
  write_tensors(kWidth, 1e5F);
  EXPECT_EQ(run(kFew + std::string(" --dtype f16")), 1);
  EXPECT_NE(errors_.find("k.npy holds infinity at head 0, row 0, column 0 (as float16)"),
            errors_.npos)
      << errors_;
  EXPECT_FALSE(has("out"));
  EXPECT_EQ(run(kFew + std::string(" --dtype bf16")), 0) << errors_;
  EXPECT_EQ(run(kFew + std::string(" --dtype half")), 2);
  EXPECT_EQ(errors_,
            "fovea_compare: --dtype: 'half' is not known; the types are f32, f64, f16, bf16\n");
}

TEST_F(FoveaCompare, AnUnknownOperatorListsTheKnownOnes) {
  EXPECT_EQ(run("--qkv nowhere --operators striped"), 2);
  EXPECT_EQ(errors_.find("fovea_compare: --operators: 'striped' is not known; the operators are "
                         "bigbird, blocked_eigen, "),
            0u)
      << errors_;
  EXPECT_NE(errors_.find(", strided, synthesizer\n"), errors_.npos);
}

TEST_F(FoveaCompare, RunsOnTheRepositorysTensors) {
  ASSERT_EQ(run("--repeat 1 --operators local --lengths 64,2048 --limit 1e-9"), 0) << errors_;
  EXPECT_NE(output_.find("9 heads on 3 key heads, D = 64"), output_.npos) << output_;
  // Nothing is known of the first length, and all of the second is too long.
  const std::string all = json();
  // How long depends on the machine.
  EXPECT_EQ(count(all, "\"skipped\": \"a pass would take about "), count(all, "\"n\": 2048,"));
  EXPECT_EQ(count(all, " s; --limit is 1e-09 s\""), count(all, "\"n\": 2048,"));
  EXPECT_EQ(count(all, "\"error_ratio\": "), count(all, "\"n\": 64,"));
}

TEST_F(FoveaCompare, OneHeadOneRowAndOtherWidths) {
  const auto tensor = [](std::uint32_t stream, Index size) {
    return bench::gaussians<float>(1, stream, size);
  };
  for (const auto& [rows, width] : {std::pair<Index, Index>{1, 8}, {64, 1}, {96, 7}}) {
    for (const char* name : {"q.npy", "k.npy", "v.npy"}) {
      write_heads(folder_ / name, 1, width,
                  tensor(static_cast<std::uint32_t>(name[0]), rows * width));
    }
    EXPECT_EQ(run(kCompare), 0) << rows << " x " << width << output_ << errors_;
    EXPECT_NE(output_.find("1 head, D = " + std::to_string(width)), output_.npos);
    for (const char* mark : {"WRONG", "FAILED", " nan", " inf"}) {
      EXPECT_EQ(output_.find(mark), output_.npos) << output_;
    }
    // Sinkhorn, Reformer and Nystroem attention, and their training.
    EXPECT_EQ(count(output_, " skipped: N is not a multiple of 64\n"), rows % 64 == 0 ? 0 : 6);
    ASSERT_EQ(run(kCompare + std::string(" --dtype f16")), 0) << output_ << errors_;
    for (const char* mark : {"WRONG", "FAILED", " nan", " inf"}) {
      EXPECT_EQ(output_.find(mark), output_.npos) << output_;
    }
  }
}

/// Scripts run in it: what is sorted is sorted, and nothing is fetched.
TEST_F(FoveaCompare, TheReportSortsInABrowser) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(run(kFew), 0) << errors_;
  const std::string page = text_of("out/report.html");
  EXPECT_EQ(page.find("src="), page.npos);
  EXPECT_EQ(page.find("href="), page.npos);
  EXPECT_EQ(count(page, "http"), count(page, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_EQ(count(page, "<svg "), 9);  // training steps are causal, no distance but causal ones
  if (shell("command -v chromium") != 0) GTEST_SKIP() << "no chromium (Debian: chromium)";
  for (const std::string order : {"3", "-3"}) {
    ASSERT_EQ(shell("HOME=$PWD timeout 120 chromium --headless --no-sandbox --disable-gpu "
                    "--dump-dom \"file://$PWD/out/report.html#" +
                    order + "\""),
              0)
        << errors_;
    std::vector<double> times;
    const std::size_t body = output_.find("<tbody>", output_.find("id=\"cells\""));
    ASSERT_NE(body, output_.npos) << output_;
    for (std::size_t at = body; (at = output_.find("<tr>", at)) != output_.npos; ++at) {
      std::size_t cell = at;
      for (int i = 0; i < 3; ++i) cell = output_.find("<td", cell + 1);
      times.push_back(std::stod(output_.substr(output_.find("data-v=\"", cell) + 8)));
    }
    EXPECT_EQ(static_cast<Index>(times.size()), count(json(), "\"label\": "));
    EXPECT_TRUE(order == "3" ? std::ranges::is_sorted(times)
                             : std::ranges::is_sorted(times, std::ranges::greater()));
    EXPECT_NE(output_.find(order == "3" ? "aria-sort=\"ascending\"" : "aria-sort=\"descending\""),
              output_.npos);
  }
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

TEST_F(FoveaCompare, IrregularFilesAreRefusedBeforeMeasuring) {
  write_tensors(kWidth, 1);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(run(kCompare + std::string(" --json pipe")), 1);
  EXPECT_EQ(errors_, "fovea_compare: pipe: is a pipe; results are written to regular files only\n");
  EXPECT_EQ(output_, "");
  EXPECT_EQ(run("--text pipe"), 1);
  EXPECT_EQ(errors_, "fovea_compare: pipe: cannot be read: it is not a regular file\n");
  EXPECT_EQ(run("--text ."), 1);
  EXPECT_EQ(errors_, "fovea_compare: .: cannot be read: it is not a regular file\n");
  for (const std::string file : {"out/time_causal.svg", "out/distance_causal.svg"}) {
    fs::create_directories(folder_ / file);
    EXPECT_EQ(run(kCompare), 1);
    EXPECT_NE(errors_.find(file + ": is a directory"), errors_.npos) << errors_;
    fs::remove(folder_ / file);
  }
  put("file", "of a user");
  EXPECT_EQ(run(kCompare + std::string(" --plots file/out")), 1);
  EXPECT_EQ(errors_.find("fovea_compare: file/out: cannot be created: "), 0u) << errors_;
  EXPECT_EQ(output_, "");
  fs::create_directories(folder_ / "other/report.html");
  EXPECT_EQ(run(kCompare + std::string(" --plots other")), 1);
  EXPECT_EQ(errors_.find("fovea_compare: other/report.html: is a directory"), 0u) << errors_;
}

/// Nothing but the machine's facts comes before what is wrong with the tensors.
TEST_F(FoveaCompare, MismatchedTensorsAreReported) {
  const auto expect = [&](const std::string& message) {
    EXPECT_EQ(run(kCompare), 1);
    EXPECT_EQ(errors_, "fovea_compare: " + message + "\n");
    EXPECT_EQ(output_, "");
    EXPECT_FALSE(has("out"));
  };
  write_tensors(kWidth, 1);
  const std::vector<float> zeros(static_cast<std::size_t>(6 * kRows * kWidth));
  write_heads(folder_ / "k.npy", 3, kWidth, {zeros.data(), zeros.data() + 3 * kRows * kWidth});
  expect(".: the heads of k and v differ; q is 1x4x64x8, k 1x3x64x8, v 1x2x64x8");
  write_heads(folder_ / "v.npy", 3, kWidth, {zeros.data(), zeros.data() + 3 * kRows * kWidth});
  expect(".: the heads of k must divide those of q; q is 1x4x64x8, k 1x3x64x8, v 1x3x64x8");
  write_heads(folder_ / "q.npy", 3, 2 * kWidth, zeros);
  expect(".: the widths of q and k differ; q is 1x3x64x16, k 1x3x64x8, v 1x3x64x8");
  put("q.npy", "no tensor");
  EXPECT_EQ(run(kCompare), 1);
  EXPECT_EQ(errors_.find("fovea_compare: ./q.npy: "), 0u) << errors_;
  fs::remove(folder_ / "q.npy");
  EXPECT_EQ(run(kCompare), 1);
  EXPECT_EQ(errors_.find("fovea_compare: ./q.npy: "), 0u) << errors_;
}

/// For --help, the script builds no operator and prints the program's help.
TEST_F(FoveaCompare, TheScriptPrintsTheProgramsHelp) {
  ASSERT_EQ(run("--help"), 0);
  const std::string help = output_;
  EXPECT_EQ(help.find("fovea_compare: "), 0u);
  EXPECT_EQ(count(help, "\n  --"), 16);
  for (const char* flag : {"--help", "-h", "--lengths 64 --help"}) {
    ASSERT_EQ(shell("bash '" FOVEA_SOURCE_DIR "/cmake/compare.sh' " + std::string(flag)), 0);
    EXPECT_EQ(output_, help);
    EXPECT_EQ(errors_, "");
  }
}

}  // namespace fovea_test::bench_fovea_compare
