// SPDX-License-Identifier: MIT
/// \file
/// Each kernel body says what it stands on, in a block that only a reader of that file alone
/// compiles: bodies that its list has before it, and headers. A function that may be called, not
/// inlined, takes no vector by value. Each reference mask is also broken on purpose.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fovea_test::structure_kernel_bodies {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What a text includes of this library, in its order.
Names includes(const std::string& text) {
  static const std::regex include("#include \"(fovea/[^\"]+)\"");
  Names names;
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) {
    names.push_back((*i)[1]);
  }
  return names;
}

constexpr std::string_view kBlock =
    "#if !defined(FOVEA_LEVEL)  // Read alone: what it stands on.\n#pragma once\n";

/// What is wrong with a body, given the bodies that its list has before it; empty if nothing.
std::string complaint(const std::string& body, const std::string& text, const Names& before) {
  const std::size_t begin = text.find(kBlock);
  if (begin == std::string::npos) return body + " does not say what it stands on";
  const std::size_t end = text.find("#endif", begin);
  for (const std::string& name : includes(text.substr(begin, end - begin))) {
    const bool is_body = name.ends_with(".inl.hpp") && name.find("/levels/") == std::string::npos;
    if (is_body && std::ranges::find(before, name) == before.end()) {
      return body + " stands on " + name + ", which its list does not have before it";
    }
  }
  if (!includes(text.substr(end)).empty()) return body + " includes a file as a body";
  return {};
}

/// The bodies in the list of a folder.
Names list(const std::string& name) {
  return includes(
      text_of(fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / name / "bodies.inl.hpp"));
}

/// All that is wrong with the bodies of a list.
std::string complaints(const std::string& folder, Names before) {
  std::string all;
  for (const std::string& body : list(folder)) {
    const std::string wrong =
        complaint(body, text_of(fs::path(FOVEA_SOURCE_DIR "/include") / body), before);
    if (!wrong.empty()) all += wrong + "\n";
    before.push_back(body);
  }
  return all;
}

TEST(KernelBodies, SayWhatTheyStandOn) {
  const Names simd = list("simd");
  ASSERT_GT(simd.size(), 10U);
  EXPECT_EQ(complaints("simd", {}), "");
  for (const char* family :
       {"kernels/softmax", "kernels/linear", "kernels/indexed", "kernels/sketch", "kernels/layers",
        "kernels/sorting", "kernels/spectral"}) {
    EXPECT_EQ(complaints(family, simd), "") << family;
    EXPECT_GT(list(family).size(), 2U) << family;
  }
}

/// The names of functions, or "a lambda", that take a vector by value and may be called. In a unit
/// whose flags know no such registers, Clang passes it on the stack, and its AddressSanitizer does
/// not align the stack to it.
std::string vectors_by_value(std::string text) {
  text = std::regex_replace(text, std::regex("//[^\n]*"), "");
  static const std::regex parameter(R"([(,]\s*(?:const )?Vec<\w+>(?: \w+)?\s*(?=[,)]))");
  std::string found;
  for (std::sregex_iterator i(text.begin(), text.end(), parameter), end; i != end; ++i) {
    auto at = static_cast<std::size_t>(i->position());
    for (int depth = text[at] == '(' ? 0 : 1; depth != 0;) {
      --at;
      if (text[at] == ')') ++depth;
      if (text[at] == '(') --depth;
    }
    if (text[at - 1] == ']') {
      found += "a lambda\n";
      continue;
    }
    const std::size_t begin = text.find_last_of(";{}", at) + 1;  // 0 where there is none
    const std::string declaration = text.substr(begin, at - begin);
    if (declaration.find("FOVEA_INLINE") != std::string::npos) continue;
    found += declaration.substr(declaration.find_last_of(" \n") + 1) + "\n";
  }
  return found;
}

TEST(KernelBodies, PassVectorsByReferenceUnlessInlined) {
  int files = 0;
  for (const char* floor : {"kernels", "simd"}) {
    for (const auto& entry : fs::recursive_directory_iterator(
             fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / floor)) {
      if (!entry.path().native().ends_with(".inl.hpp")) continue;
      EXPECT_EQ(vectors_by_value(text_of(entry.path())), "") << entry.path();
      ++files;
    }
  }
  EXPECT_GT(files, 80);
}

TEST(KernelBodies, EveryBodyIsInAList) {
  Names listed = list("simd");
  for (const char* family :
       {"kernels/softmax", "kernels/linear", "kernels/indexed", "kernels/sketch", "kernels/layers",
        "kernels/sorting", "kernels/spectral"}) {
    for (const std::string& body : list(family)) listed.push_back(body);
  }
  std::string missing;
  for (const char* floor : {"kernels", "simd"}) {
    for (const auto& entry : fs::recursive_directory_iterator(
             fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / floor)) {
      const std::string name =
          fs::relative(entry.path(), FOVEA_SOURCE_DIR "/include").generic_string();
      const bool is_of_levels = name.find("/levels/") != std::string::npos ||
                                name.find("/arch/") != std::string::npos ||
                                name.ends_with("each_level.inl.hpp");
      if (!name.ends_with(".inl.hpp") || name.ends_with("bodies.inl.hpp") || is_of_levels) continue;
      if (std::ranges::find(listed, name) == listed.end()) missing += name + "\n";
    }
  }
  EXPECT_EQ(missing, "");
}

TEST(CompiledForm, HasAllKernelsAndPasses) {
  const fs::path root = FOVEA_SOURCE_DIR "/include";
  const Names has = includes(text_of(root / "fovea/compiled.hpp"));
  Names wanted;
  for (const char* floor : {"attention", "kernels"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / "fovea" / floor)) {
      const std::string name = fs::relative(entry.path(), root).generic_string();
      const bool is_kernels = name.find("/kernels/") != std::string::npos;
      const char* const end = is_kernels ? "/table.hpp" : ".inl.hpp";
      if (name.ends_with(end) && name != "fovea/kernels/table.hpp") wanted.push_back(name);
    }
  }
  std::ranges::sort(wanted);
  EXPECT_GT(wanted.size(), 20U);
  EXPECT_EQ(has, wanted);
}

TEST(KernelBodiesBroken, IsFound) {
  const std::string block =
      std::string(kBlock) + "#include \"fovea/kernels/linear/x.inl.hpp\"\n#endif\n";
  EXPECT_EQ(complaint("y", "int y;", {}), "y does not say what it stands on");
  EXPECT_EQ(complaint("y", block, {}),
            "y stands on fovea/kernels/linear/x.inl.hpp, which its list does not have before it");
  EXPECT_EQ(complaint("y", block, {"fovea/kernels/linear/x.inl.hpp"}), "");
  EXPECT_EQ(complaint("y", block + "#include \"fovea/core/view.hpp\"\n",
                      {"fovea/kernels/linear/x.inl.hpp"}),
            "y includes a file as a body");
  EXPECT_EQ(
      vectors_by_value("int x;\ntemplate <class T>\nvoid f(Index n, const Vec<T>& x, Vec<T> y) {"),
      "f\n");
  EXPECT_EQ(vectors_by_value("FOVEA_NOINLINE void f(F (&g)(int), Vec<T>);"), "f\n");
  EXPECT_EQ(vectors_by_value("map([&](Vec<T> x, const Vec<T>&) { return x; });"), "a lambda\n");
  EXPECT_EQ(vectors_by_value("template <class T>\nFOVEA_INLINE Vec<T> f(Vec<T> x) { return x; }"),
            "");
  EXPECT_EQ(vectors_by_value("Vec<T> x = f(Vec<T>{}, zero<T>());  // (Vec<T> x)"), "");
}

}  // namespace fovea_test::structure_kernel_bodies
