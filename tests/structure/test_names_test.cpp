// SPDX-License-Identifier: MIT
/// \file
/// Some test programs compile several tests as one translation unit, and which ones changes with
/// every new test. So a name in the tests' headers, which share a namespace, must have one meaning.
/// Violations are also made on purpose.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <istream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fovea_test::structure_test_names {

namespace fs = std::filesystem;

/// The meaning of each name: the header that defines it, or the name that it is an alias of.
using Meanings = std::map<std::string, std::set<std::string>>;

/// Adds the types, concepts and variables that a header has in fovea_test itself.
void add_names(const std::string& header, std::istream& text, Meanings& meanings) {
  static const std::regex opens(R"(^(?:inline )?namespace ([\w:]*) ?\{)");
  static const std::regex closes(R"(^\}  // (?:inline )?namespace)");
  static const std::regex defines(
      R"(^(?:struct|class|enum class|concept|using) (\w+)(?: (?:final )?[:={]| =$|$))");
  static const std::regex variable(
      R"(^(?:(?:inline|constexpr|const|static) )+[\w:]+(?:<[^=]*>)? (\w+)(?: =|\{|\[))");
  static const std::regex other_name(R"(^using ((?:\w+::)+(\w+));)");
  std::vector<std::string> spaces;
  for (std::string line; std::getline(text, line);) {
    std::smatch match;
    if (std::regex_search(line, match, opens)) {
      spaces.push_back(match[1]);
    } else if (std::regex_search(line, closes)) {
      if (!spaces.empty()) spaces.pop_back();
    } else if (spaces != std::vector<std::string>{"fovea_test"}) {
      continue;
    } else if (std::regex_search(line, match, other_name)) {
      meanings[match[2]].insert(match[1]);
    } else if (std::regex_search(line, match, defines) ||
               std::regex_search(line, match, variable)) {
      meanings[match[1]].insert(header);
    }
  }
}

/// The names that have several meanings, a line each.
std::string complaints(const Meanings& meanings) {
  std::string text;
  for (const auto& [name, all] : meanings) {
    if (all.size() < 2) continue;
    text.append(name).append(":");
    for (const std::string& meaning : all) text.append(" ").append(meaning);
    text.append("\n");
  }
  return text;
}

const Meanings& our_names() {
  static const Meanings names = [] {
    Meanings made;
    const fs::path tests(FOVEA_SOURCE_DIR "/tests");
    for (const auto& entry : fs::recursive_directory_iterator(tests)) {
      if (entry.path().extension() != ".hpp") continue;
      std::ifstream file(entry.path());
      add_names(fs::relative(entry.path(), tests).generic_string(), file, made);
    }
    return made;
  }();
  return names;
}

TEST(TestNames, AreUnique) { EXPECT_EQ(complaints(our_names()), ""); }

TEST(TestNames, WereRead) {
  EXPECT_GT(our_names().size(), 200u);
  EXPECT_EQ(our_names().at("Tensor"), std::set<std::string>{"support/tensor.hpp"});
  EXPECT_EQ(our_names().at("Index"), std::set<std::string>{"fovea::Index"});
}

/// The complaint if a header with this text is added.
std::string with_header(const std::string& text) {
  Meanings names = our_names();
  std::istringstream header("namespace fovea_test {\n\n" + text +
                            "\n\n}  // namespace fovea_test\n");
  add_names("new.hpp", header, names);
  return complaints(names);
}

TEST(TestNames, DuplicatesAreFound) {
  for (const char* text :
       {"struct Tensor {", "template <class T>\nclass Tensor final : public Base<T> {",
        "using Tensor = int;", "template <class T>\nconcept Tensor = true;",
        "enum class Tensor : char {", "inline constexpr double Tensor = 1;",
        "const std::vector<int> Tensor{1};", "struct Tensor"}) {
    EXPECT_EQ(with_header(text), "Tensor: new.hpp support/tensor.hpp\n") << text;
  }
  EXPECT_EQ(with_header("using fovea::Tensor;"), "Tensor: fovea::Tensor support/tensor.hpp\n");
  EXPECT_EQ(with_header("using other::Index;"), "Index: fovea::Index other::Index\n");
}

TEST(TestNames, DistinctNamesAreAccepted) {
  for (const char* text : {"using fovea::Index;", "struct Tensor;",
                           "namespace own {\n\nstruct Tensor {\n};\n\n}  // namespace own",
                           "  struct Tensor {", "struct Unheard {", "Tensor<int> made() {"}) {
    EXPECT_EQ(with_header(text), "") << text;
  }
}

}  // namespace fovea_test::structure_test_names
