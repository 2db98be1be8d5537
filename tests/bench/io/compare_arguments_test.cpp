// SPDX-License-Identifier: MIT
// fovea_test(LINK fovea_command_line)
// The command line of fovea_compare.
#include "bench/io/compare_arguments.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fovea_test::bench_io_compare_arguments {

using bench::CompareArguments;

CompareArguments parse(std::vector<const char*> words) {
  words.insert(words.begin(), "fovea_compare");
  return bench::compare_arguments(static_cast<int>(words.size()), words.data());
}

std::string message_of(const std::vector<const char*>& words) {
  try {
    parse(words);
  } catch (const bench::ArgumentError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CompareArguments, HaveDefaults) {
  const CompareArguments a = parse({});
  EXPECT_EQ(a.lengths.front(), 512);
  EXPECT_EQ(a.lengths.back(), 65536);
  EXPECT_EQ(a.operators, std::vector<std::string>());
  EXPECT_EQ(a.limit, 2);
  EXPECT_FALSE(a.causal);
  EXPECT_EQ(a.type, bench::TensorType::f32);
  EXPECT_EQ(parse({"--dtype", "f64"}).type, bench::TensorType::f64);
  EXPECT_EQ(parse({"--dtype=f16"}).type, bench::TensorType::f16);
  EXPECT_EQ(parse({"--dtype", "bf16"}).type, bench::TensorType::bf16);
  EXPECT_STREQ(type_name(parse({"--dtype", "bf16"})), "bfloat16");
  EXPECT_EQ(a.heads, 8);
  EXPECT_EQ(a.width, 64);
  EXPECT_EQ(a.threads, 1);
  EXPECT_EQ(a.directory, "out");
  EXPECT_FALSE(a.help);
  EXPECT_FALSE(a.lengths_given);
}

TEST(CompareArguments, AcceptBothForms) {
  const CompareArguments a =
      parse({"--text", "a b.txt", "--lengths=64,32,64", "--heads", "2", "--width=16", "--threads",
             "3", "--repeat", "1", "--json=x.json", "--plots", "dir", "--causal", "--limit", "0.5",
             "--operators=local,full, causal", "--against", "y.json"});
  EXPECT_EQ(a.text_file, "a b.txt");
  EXPECT_EQ(a.lengths, (std::vector<fovea::Index>{32, 64}));
  EXPECT_EQ(a.heads, 2);
  EXPECT_EQ(a.width, 16);
  EXPECT_EQ(a.threads, 3);
  EXPECT_EQ(a.repeat, 1);
  EXPECT_EQ(a.json_file, "x.json");
  EXPECT_EQ(a.directory, "dir");
  EXPECT_TRUE(a.lengths_given);
  EXPECT_TRUE(a.causal);
  EXPECT_EQ(a.limit, 0.5);
  EXPECT_EQ(a.operators, (std::vector<std::string>{"local", "full", " causal"}));
  EXPECT_EQ(a.against_file, "y.json");
}

TEST(CompareArguments, ATextHasItsOwnDefaultLengths) {
  EXPECT_EQ(parse({"--text", "t"}).lengths, (std::vector<fovea::Index>{1024, 4096, 16384}));
  EXPECT_EQ(parse({"--text", "t", "--lengths", "7"}).lengths, (std::vector<fovea::Index>{7}));
}

TEST(CompareArguments, AdviceUsesGivenSizes) {
  const CompareArguments a = parse({"--advise", "--lengths", "96", "--heads=4", "--width", "8"});
  EXPECT_TRUE(a.advise && a.heads_given && a.width_given && !a.causal);
  EXPECT_EQ(a.heads, 4);
  EXPECT_EQ(parse({"--causal", "--advise"}).lengths, (std::vector<fovea::Index>{2048}));
  EXPECT_FALSE(parse({"--advise"}).heads_given);
}

TEST(CompareArguments, DrawsWithOrWithoutADirectory) {
  EXPECT_EQ(parse({"--draw", "x.json", "--plots", "y"}).drawn_file, "x.json");
  EXPECT_EQ(message_of({"--draw", "x.json", "--advise"}), "--advise excludes --draw");
}

TEST(CompareArguments, HelpMayBeAnywhere) {
  EXPECT_TRUE(parse({"--threads", "2", "--help"}).help);
  EXPECT_TRUE(parse({"-h"}).help);
}

TEST(CompareArguments, RefuseWithOneLine) {
  const std::vector<std::vector<const char*>> wrong = {{"--colour"},
                                                       {"file.txt"},
                                                       {"--lengths"},
                                                       {"--lengths", ""},
                                                       {"--lengths="},
                                                       {"--lengths", "1,"},
                                                       {"--lengths", ",1"},
                                                       {"--lengths", "0"},
                                                       {"--lengths", "1k"},
                                                       {"--lengths", "-1"},
                                                       {"--heads", "0"},
                                                       {"--heads", "two"},
                                                       {"--heads", "1e3"},
                                                       {"--heads=99999999999999999999"},
                                                       {"--repeat", "0"},
                                                       {"--threads", "-1"},
                                                       {"--text", "--qkv"},
                                                       {"--heads", "1", "--heads", "1"},
                                                       {""},
                                                       {"--text="},
                                                       {"--qkv", "d", "--text", "t"},
                                                       {"--qkv", "d", "--heads", "2"},
                                                       {"--width=1", "--qkv=d"},
                                                       {"--heads", "2"},
                                                       {"--operators", "full,,local"},
                                                       {"--operators", "full,"},
                                                       {"--limit", "0"},
                                                       {"--limit", "nan"},
                                                       {"--limit", "2s"},
                                                       {"--dtype", "f8"},
                                                       {"--against"},
                                                       {"--draw"},
                                                       {"--draw=x", "--causal"},
                                                       {"--draw=x", "--heads=2"},
                                                       {"--advise", "--width", "0"},
                                                       {"--advise", "--lengths", "x"}};
  for (const auto& words : wrong) {
    const std::string message = message_of(words);
    EXPECT_NE(message, "accepted") << words.front();
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_EQ(message_of({"--heads", "0"}), "--heads: '0' is not a whole number from 1 to 1024");
  EXPECT_EQ(message_of({"--text"}), "--text needs a value");
  EXPECT_EQ(message_of({"--dtype", "F16"}),
            "--dtype: 'F16' is not known; the types are f32, f64, f16, bf16");
}

}  // namespace fovea_test::bench_io_compare_arguments
