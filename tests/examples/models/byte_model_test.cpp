// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io FULL PROGRAM byte_model)
// The program as users run it, on a text of a few lines.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/run_program.hpp"

namespace fovea_test::examples_models_byte_model {

class ByteModelProgram : public RunProgram {
 protected:
  ByteModelProgram() : RunProgram(FOVEA_PROGRAM) {
    std::string text;
    for (int i = 0; i < 100; ++i) {
      text += "the square of " + std::to_string(i) + " is " + std::to_string(i * i) + ".\n";
    }
    put("text", text);
  }
};

constexpr const char* kSmall =
    "--text text --length 16 --width 8 --layers 1 --heads 2 --batch 4 --learning-rate 0.01 ";

TEST_F(ByteModelProgram, LearnsWithSeveralOperatorsAndDrawsTheirLosses) {
  EXPECT_EQ(run(std::string(kSmall) +
                "--steps 150 --report 50 --operator full,linear --json l.json --plot l.svg"),
            0)
      << errors_;
  EXPECT_EQ(output_, "");
  const auto json = nlohmann::json::parse(text_of("l.json"));
  const double unigrams = json["unigram_bits_per_byte"];
  EXPECT_EQ(json["operators"].size(), 2u);
  for (const auto& op : json["operators"]) {
    ASSERT_EQ(op["losses"].size(), 3u);
    EXPECT_EQ(op["losses"][2]["step"], 150);
    EXPECT_LT(op["losses"][2]["bits_per_byte"].get<double>(), unigrams);
    EXPECT_LT(op["losses"][2]["bits_per_learnt_byte"].get<double>(),
              op["losses"][0]["bits_per_learnt_byte"].get<double>());
    EXPECT_GT(op["tokens_per_second"].get<double>(), 0);
  }
  EXPECT_NE(errors_.find("linear     step    150 of 150  bits per byte: training "), errors_.npos)
      << errors_;
  const std::string chart = text_of("l.svg");
  EXPECT_TRUE(chart.starts_with("<svg "));
  for (const char* name : {">full<", ">linear<", ">how often each byte is<"}) {
    EXPECT_NE(chart.find(name), chart.npos) << name;
  }
}

TEST_F(ByteModelProgram, ContinuesFromACheckpointWithTheSameBits) {
  const std::string steps = std::string(kSmall) + "--steps 12 ";
  EXPECT_EQ(run(steps + "--save whole --threads 2"), 0) << errors_;
  EXPECT_EQ(run(steps + "--save half --until 5"), 0) << errors_;
  EXPECT_NE(text_of("half"), text_of("whole"));
  EXPECT_EQ(run("--text text --load half --save rest --threads 1"), 0) << errors_;
  EXPECT_EQ(text_of("rest"), text_of("whole"));
}

TEST_F(ByteModelProgram, ContinuesATextTheSameWayTwice) {
  const std::string generate = "--generate 30 --prompt 'the square' --temperature 0.7 --top-k 9";
  EXPECT_EQ(run(std::string(kSmall) + "--steps 20 --save model " + generate), 0) << errors_;
  const std::string first = output_;
  EXPECT_EQ(first.size(), 10u + 30 + 1);
  EXPECT_TRUE(first.starts_with("the square"));
  EXPECT_EQ(run("--load model --threads 1 " + generate), 0) << errors_;
  EXPECT_EQ(output_, first);
  EXPECT_EQ(errors_, "");
  EXPECT_EQ(run("--load model --generate 0"), 0);
  EXPECT_EQ(output_, "\n");
}

TEST_F(ByteModelProgram, RefusesWithOneLineAndWritesNothing) {
  const auto refusal = [&](const std::string& arguments) {
    EXPECT_NE(run(arguments), 0) << arguments;
    EXPECT_EQ(output_, "");
    EXPECT_FALSE(has("model"));
    return errors_.substr(0, errors_.find('\n'));
  };
  const std::string name = "byte_model: ";
  EXPECT_EQ(refusal(""), name + "expected --text FILE, or --load FILE --generate N; see --help");
  EXPECT_EQ(refusal("--text text --operator full,half"),
            name + "--operator half: it is not known; see --help");
  EXPECT_EQ(refusal("--text text --operator fsat --save model"),
            name + "--operator fsat: it sees later tokens, so it cannot decode");
  EXPECT_EQ(refusal(std::string(kSmall) + "--save model --generate 3 --prompt 'seventeen letters'"),
            name + "the prompt has 17 bytes; the model has positions for 16");
  EXPECT_EQ(refusal("--text text --operator full,local --save model"),
            name + "--save is of one model: expected one --operator");
  EXPECT_EQ(refusal("--text text --heads 3 --save model"),
            name + "--heads 3 does not divide --width 64");
  EXPECT_EQ(refusal("--text text --width 8x"),
            name + "--width: '8x' is not a whole number from 1 to 16384");
  EXPECT_EQ(refusal("--text text --learning-rate -1"),
            name + "--learning-rate: '-1' is not a number of at least 0");
  EXPECT_EQ(refusal("--text text --temperature 2"), name + "--temperature requires --generate");
  EXPECT_EQ(refusal("--load x --generate 3 --width 8"), name + "--width excludes --load");
  EXPECT_EQ(refusal("--load x --generate 3 --json l.json"), name + "--json requires --text");
  EXPECT_EQ(refusal("--load x --generate 3"),
            name + "x: cannot be read: No such file or directory");
  EXPECT_EQ(refusal("--load text --generate 3").substr(0, 33), name + "text: its header has ");
  EXPECT_EQ(refusal("--text text --save none/model"),
            name + "none/model: cannot be written: No such file or directory");
  EXPECT_EQ(refusal("text"), name + "The following argument was not expected: text");
  EXPECT_EQ(refusal("--text text --length 300 --save model").substr(0, 26),
            name + "text: it has 2");
}

TEST_F(ByteModelProgram, PrintsHelp) {
  EXPECT_EQ(run("--help"), 0);
  EXPECT_TRUE(output_.starts_with("byte_model: ")) << output_;
}

}  // namespace fovea_test::examples_models_byte_model
