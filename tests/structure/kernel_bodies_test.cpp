// SPDX-License-Identifier: MIT
/// \file
/// Rules for kernel bodies. Each body begins with a block that no instruction-set level compiles,
/// for editors: it includes the headers and bodies on which the body depends, and these bodies
/// precede it in its family's list. A function that is not inlined takes no vector by value.
/// KernelBodiesBroken checks that violations are found.
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

/// The headers of this library that a text includes, in order.
Names includes(const std::string& text) {
  static const std::regex include("#include \"(fovea/[^\"]+)\"");
  Names names;
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) {
    names.push_back((*i)[1]);
  }
  return names;
}

/// The block with the dependencies of a body, which only editors compile.
const std::regex kEditorBlock(
    "#if !defined\\(FOVEA_LEVEL\\)[^\n]*\n#pragma once\n[\\s\\S]*?#endif");

/// What is wrong with a body, given the bodies that precede it in its list; empty if nothing is.
std::string complaint(const std::string& body, const std::string& text, const Names& before) {
  std::smatch block;
  if (!std::regex_search(text, block, kEditorBlock)) return body + " has no block for editors";
  for (const std::string& name : includes(block.str())) {
    const bool is_body = name.ends_with(".inl.hpp") && name.find("/levels/") == std::string::npos;
    if (is_body && std::ranges::find(before, name) == before.end()) {
      return body + " depends on " + name + ", which does not precede it in the list";
    }
  }
  if (!includes(block.suffix()).empty()) return body + " includes a file outside of this block";
  return {};
}

/// The bodies that a directory's list contains.
Names list(const std::string& name) {
  return includes(
      text_of(fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / name / "bodies.inl.hpp"));
}

/// Everything that is wrong with the bodies of a list.
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

TEST(KernelBodies, DependOnlyOnBodiesThatPrecedeThem) {
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

/// The names of functions, or "a lambda", that take a vector by value and are not always inlined.
/// If a unit's flags do not include registers of this width, Clang passes the vector on the stack,
/// and its AddressSanitizer does not align the stack for it.
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
  for (const char* directory : {"kernels", "simd"}) {
    for (const auto& entry : fs::recursive_directory_iterator(
             fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / directory)) {
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
  for (const char* directory : {"kernels", "simd"}) {
    for (const auto& entry : fs::recursive_directory_iterator(
             fs::path(FOVEA_SOURCE_DIR "/include") / "fovea" / directory)) {
      const std::string name =
          fs::relative(entry.path(), FOVEA_SOURCE_DIR "/include").generic_string();
      const bool describes_levels = name.find("/levels/") != std::string::npos ||
                                    name.find("/arch/") != std::string::npos ||
                                    name.ends_with("each_level.inl.hpp");
      if (!name.ends_with(".inl.hpp") || name.ends_with("bodies.inl.hpp") || describes_levels)
        continue;
      if (std::ranges::find(listed, name) == listed.end()) missing += name + "\n";
    }
  }
  EXPECT_EQ(missing, "");
}

TEST(KernelBodiesBroken, ViolationsAreFound) {
  const std::string block =
      "#if !defined(FOVEA_LEVEL)  // for editors\n#pragma once\n"
      "#include \"fovea/kernels/linear/x.inl.hpp\"\n#endif\n";
  EXPECT_EQ(complaint("y", "int y;", {}), "y has no block for editors");
  EXPECT_EQ(complaint("y", block, {}),
            "y depends on fovea/kernels/linear/x.inl.hpp, which does not precede it in the list");
  EXPECT_EQ(complaint("y", block, {"fovea/kernels/linear/x.inl.hpp"}), "");
  EXPECT_EQ(complaint("y", block + "#include \"fovea/core/view.hpp\"\n",
                      {"fovea/kernels/linear/x.inl.hpp"}),
            "y includes a file outside of this block");
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
