// SPDX-License-Identifier: MIT
// fovea_test(ALONE NEEDS io fftw FULL PROGRAM fovea_learning)
// The program that trains small models, as users run it: losses fall, an interruption changes no
// bit, every system learns, and what is refused is refused before anything is written.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.hpp"

namespace fovea_test::bench_fovea_learning {

class FoveaLearning : public RunProgram {
 protected:
  FoveaLearning() : RunProgram(FOVEA_PROGRAM) {}

  nlohmann::json results(const char* file) const { return nlohmann::json::parse(text_of(file)); }
};

constexpr const char* kSmall =
    "--length 16 --width 8 --layers 1 --heads 2 --batch 8 --learning-rate 0.01 --held-out 16 ";

constexpr const char* kOther =
    "--length 16 --width 8 --layers 2 --heads 2 --batch 8 --learning-rate 0.01 --held-out 16 ";

TEST_F(FoveaLearning, LossesOfCopyDecreaseAndArePlotted) {
  EXPECT_EQ(run(std::string(kSmall) +
                "--steps 200 --report 50 --systems full,linear:2 --seeds 2 --commit abc --json l"),
            0)
      << errors_;
  EXPECT_NE(output_.find("full           seed 1  step    200 of 200  loss "), output_.npos);
  const auto json = results("l");
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["machine"].count("flags"), 1u);
  ASSERT_EQ(json["systems"].size(), 2u);
  for (const auto& system : json["systems"]) {
    EXPECT_EQ(system["seeds"], 2);
    ASSERT_EQ(system["points"].size(), 4u);
    const double first = system["points"][0]["mean_loss"], last = system["points"][3]["mean_loss"];
    EXPECT_LT(last, first - 0.05) << system["system"];
    EXPECT_EQ(system["mean_loss"].get<double>(), last);
    ASSERT_EQ(system["loss_of_seeds"].size(), 2u);
    const double a = system["loss_of_seeds"][0], b = system["loss_of_seeds"][1];
    EXPECT_NE(a, b);
    EXPECT_DOUBLE_EQ((a + b) / 2, last);
    EXPECT_EQ(system["least_loss"].get<double>(), std::min(a, b));
    EXPECT_EQ(system["most_loss"].get<double>(), std::max(a, b));
  }
  EXPECT_EQ(run("--draw l.svg --from l --only linear:2"), 0) << errors_;
  const std::string chart = text_of("l.svg");
  EXPECT_NE(chart.find(">linear:2<"), chart.npos);
  EXPECT_NE(chart.find(": copy, causal, length 16<"), chart.npos);
  EXPECT_NE(chart.find(">loss, nats of an answer<"), chart.npos);
  EXPECT_NE(chart.find(">an attention: linear:MAPS<"), chart.npos);
  EXPECT_EQ(chart.find(">full<"), chart.npos);
}

TEST_F(FoveaLearning, InterruptionDoesNotChangeBits) {
  for (const char* task :
       {"--task copy --systems fmm:2:4 ", "--task list_ops --systems smart_bird:4 ",
        "--task list_ops --systems fsat:2 "}) {
    const std::string all =
        std::string(task) + kSmall + "--steps 12 --report 4 --seeds 1 --checkpoints ";
    EXPECT_EQ(run(all + "whole --json w"), 0) << errors_;
    EXPECT_EQ(run(all + "parts --json p --until 4"), 0) << errors_;
    EXPECT_EQ(results("p")["systems"][0]["points"].size(), 1u);
    EXPECT_EQ(run(all + "parts --json p"), 0) << errors_;
    EXPECT_EQ(results("p")["systems"], results("w")["systems"]) << task;
    EXPECT_EQ(run(all + "parts --json q"), 0) << errors_;
    EXPECT_EQ(results("q")["systems"], results("w")["systems"]) << "nothing is left to be learnt";
  }
}

TEST_F(FoveaLearning, EverySystemLearnsBothKindsOfTask) {
  put("a", "one\n%\none\n%\none\n%\none\n%\none\n%\none\n%\none\n%\none\n%\none\n%\none\n%\n");
  put("b", "two\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\ntwo\n%\n");
  EXPECT_EQ(run(std::string(kSmall) + "--steps 60 --report 60 --seeds 1 --json c --systems "
                                      "full,local:8,strided:4,fixed:4:2,linear:3,fmm:3:4"),
            0)
      << errors_;
  for (const auto& system : results("c")["systems"]) {
    EXPECT_LT(system["mean_loss"].get<double>(), 2.45) << system["system"];
  }
  EXPECT_EQ(run(std::string(kSmall) +
                "--task texts --texts a,b --steps 60 --report 60 --seeds 1 --json t --systems "
                "full,local:8,strided:4,fixed:4:2,linear:1,fmm:1:4,smart_bird:4,"
                "smart_bird_inverse_log:4,smart_bird_raw:4,smart_bird_top_k:4,smart_bird_random:4,"
                "fsat:2,fsat_no_truncation:2,fsat_random:2,fsat_predicted:2"),
            0)
      << errors_;
  EXPECT_EQ(results("t")["systems"].size(), 15u);
  for (const auto& system : results("t")["systems"]) {
    EXPECT_EQ(system["mean_accuracy"], 1.0) << system["system"];
  }
}

TEST_F(FoveaLearning, RefusesWithOneLineAndWritesNothing) {
  const auto refusal = [&](const std::string& arguments) {
    EXPECT_NE(run(arguments), 0) << arguments;
    EXPECT_EQ(output_, "");
    EXPECT_FALSE(has("l"));
    return errors_.substr(0, errors_.find('\n'));
  };
  const std::string name = "fovea_learning: ";
  const std::string known =
      " is none of full, local:WINDOW, strided:STRIDE, fixed:STRIDE:SUMMARY, linear:MAPS, "
      "fmm:MAPS:BAND, smart_bird:KEYS, fsat:DOMINANT (with _inverse_log, _raw, _top_k or _random "
      "behind smart_bird, and _no_truncation, _random or _predicted behind fsat)";
  EXPECT_EQ(refusal(""), name + "expected --json FILE, or --draw FILE and --from FILE; see --help");
  EXPECT_EQ(refusal("--json l --draw l --from l"), name + "--json excludes --draw");
  EXPECT_EQ(refusal("--draw l"), name + "--draw requires --from");
  EXPECT_EQ(refusal("--json l --task sums"),
            name + "--task 'sums' is none of copy, list_ops, texts");
  EXPECT_EQ(refusal("--json l --systems full,half"), name + "--systems 'half'" + known);
  EXPECT_EQ(refusal("--json l --systems linear:4"),
            name + "--systems 'linear:4': expected 1 to 3 maps");
  EXPECT_EQ(refusal("--json l --systems local:0"),
            name + "--systems 'local:0': '0' is not a whole number of at least 1");
  EXPECT_EQ(refusal("--json l --systems strided:4:4"),
            name + "--systems 'strided:4:4': it has too many numbers");
  EXPECT_EQ(refusal("--json l --systems fsat"),
            name + "--systems 'fsat' does not go with --task copy: FSAT has no causal form");
  EXPECT_EQ(refusal("--json l --systems smart_bird"),
            name +
                "--systems 'smart_bird' does not go with --task copy: the sketch learns from the "
                "label of a sequence, which this task has not");
  EXPECT_EQ(refusal("--json l --length 7"), name + "copy: the length is 7; expected at least 8");
  EXPECT_EQ(refusal("--json l --heads 3"), name + "--heads 3 does not divide --width 64");
  EXPECT_EQ(refusal("--json l --task texts"),
            name + "--texts: expected at least two files, one for each label");
  EXPECT_EQ(refusal("--json none/l"),
            name + "none/l: cannot be written: No such file or directory");
  put("other", "{\"program\": \"another\"}");
  EXPECT_EQ(refusal("--draw l --from other"),
            name + "other: is not a result of fovea_learning: it names another program");
}

TEST_F(FoveaLearning, RefusesACheckpointWithOtherSettings) {
  const std::string all = std::string(kSmall) + "--steps 4 --seeds 1 --checkpoints k --json ";
  EXPECT_EQ(run(all + "a"), 0) << errors_;
  EXPECT_EQ(run(std::string(kOther) + "--steps 4 --seeds 1 --checkpoints k --json b"), 1);
  EXPECT_FALSE(has("b"));
  EXPECT_NE(errors_.find("its settings are 'copy full tokens 8 to 16, width 8, layers 1"),
            errors_.npos)
      << errors_;
}

}  // namespace fovea_test::bench_fovea_learning
