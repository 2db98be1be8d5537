// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// The documents: figures equal those of the JSON files in the repository, code that of the
/// examples, and pictures their sources; links and cited sections exist; one version is named
/// everywhere. Each rule is also broken on purpose. The target `documents` generates figures, code
/// and pictures (FOVEA_WRITE_DOCUMENTS).
#include "structure/documents.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "structure/layers_picture.hpp"

namespace fovea_test::structure_documents {

namespace fs = std::filesystem;
using fovea_test::Figures;
using fovea_test::JsonReader;
using fovea_test::LayersPicture;

/// Pages by their path from the root.
using Pages = std::map<std::string, std::string>;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string source_text(const std::string& path) {
  return text_of(fs::path(FOVEA_SOURCE_DIR) / path);
}

/// The files with these extensions, except in builds and hidden directories other than .github.
Pages sources(const std::set<std::string>& extensions) {
  Pages all;
  const fs::path root = FOVEA_SOURCE_DIR;
  for (auto at = fs::recursive_directory_iterator(root); at != end(at); ++at) {
    const std::string name = at->path().filename().string();
    const bool is_hidden = name[0] == '.' && name != ".github";
    if (at->is_directory() && (is_hidden || name == "build" || name == "out")) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file() && extensions.count(at->path().extension().string()) != 0) {
      all[fs::relative(at->path(), root).generic_string()] = text_of(at->path());
    }
  }
  return all;
}

const Pages& our_pages() {
  static const Pages pages = sources({".md"});
  return pages;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// The lines of a page outside of blocks of code, without the text between backticks.
std::vector<std::string> prose(const std::string& page) {
  static const std::regex code("`[^`]*`");
  std::vector<std::string> all;
  bool is_code = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      is_code = !is_code;
    } else if (!is_code && !line.starts_with("    ")) {
      all.push_back(std::regex_replace(line, code, "`"));
    }
  }
  return all;
}

/// The anchor of a heading, as on GitHub.
std::string anchor_of(const std::string& heading) {
  std::string made;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
      made += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == ' ') {
      made += '-';
    }
  }
  return made;
}

bool has_anchor(const std::string& page, const std::string& anchor) {
  for (const std::string& line : lines_of(page)) {
    const std::size_t text = line.find_first_not_of('#');
    if (text == 0 || text == std::string::npos || line[text] != ' ') continue;
    if (anchor_of(line.substr(text + 1)) == anchor) return true;
  }
  return false;
}

/// Relative links without a target.
std::string broken_links(const Pages& pages) {
  static const std::regex link(R"(\]\(([^)\s]+)[^)]*\))");
  std::string complaints;
  for (const auto& [path, page] : pages) {
    for (const std::string& line : prose(page)) {
      for (std::sregex_iterator at(line.begin(), line.end(), link), end; at != end; ++at) {
        const std::string target = (*at)[1];
        if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
        const std::size_t hash = std::min(target.find('#'), target.size());
        const fs::path from = fs::path(path).parent_path();
        const std::string to =
            hash == 0 ? path : (from / target.substr(0, hash)).lexically_normal().generic_string();
        const auto known = pages.find(to);
        const bool exists = known != pages.end() || fs::exists(fs::path(FOVEA_SOURCE_DIR) / to);
        const bool is_found =
            hash == target.size() ||
            (known != pages.end() && has_anchor(known->second, target.substr(hash + 1)));
        if (!exists || !is_found) complaints += path + " links to " + target + "\n";
      }
    }
  }
  return complaints;
}

/// Pages that name documents outside of the repository.
std::string outside_pages(const Pages& pages) {
  std::string complaints;
  for (const auto& [path, page] : pages) {
    for (const std::string name : {"spec", "reliability", "performance", "design", "codebases"}) {
      const std::string file = name + ".md";
      if (page.find(file) != std::string::npos) complaints += path + " names " + file + "\n";
    }
    if (page.find("shared/") != std::string::npos) complaints += path + " names shared/\n";
  }
  return complaints;
}

/// The page without the generated parts.
std::string without_figures(const std::string& page) {
  std::string made;
  std::size_t at = 0;
  while (true) {
    std::size_t begin = page.size();
    for (const char* marker : {"<!-- table ", "<!-- figure ", "<!-- code ", "<!-- pending "}) {
      begin = std::min(begin, page.find(marker, at));
    }
    made += page.substr(at, begin - at);
    if (begin == page.size()) return made;
    at = std::min(page.find("<!-- end -->", begin), page.size());
  }
}

/// Lines outside of generated parts with a measured figure: a number with a unit of time, memory or
/// ratio.
std::string figures_of_no_source(const std::string& page) {
  static const std::regex figure(
      R"([0-9] ?(%|(x|ns|ms|s|seconds|min|minutes|kB|KB|MB|MiB|GB)([^a-zA-Z0-9]|$)))");
  std::string complaints;
  for (const std::string& line : prose(without_figures(page))) {
    if (std::regex_search(line, figure)) complaints += line + "\n";
  }
  return complaints;
}

/// Pictures of results whose next paragraph has no caption from their JSON, or whose own caption
/// differs. \param read gives the text of a picture by its path from the root
std::string pictures_without_captions(
    const Pages& pages, const std::function<std::string(const std::string&)>& read = source_text) {
  static const std::regex picture(R"(^!\[[^\]]*\]\(([^)]*results/[^)]*\.svg)\))");
  static const std::regex caption(R"(<!-- figure [^ ]+ caption -->([^<]*)<!-- end -->)");
  std::string complaints;
  for (const auto& [path, page] : pages) {
    const std::vector<std::string> lines = lines_of(page);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::smatch image;
      if (!std::regex_search(lines[i], image, picture)) continue;
      std::size_t below = i;
      while (below < lines.size() && (lines[below].empty() || lines[below].starts_with("!["))) {
        ++below;
      }
      std::string paragraph;
      for (; below < lines.size() && !lines[below].empty(); ++below) paragraph += lines[below];
      const fs::path file = fs::path(path).parent_path() / image[1].str();
      const std::string svg = read(file.lexically_normal().generic_string());
      std::smatch said;
      const bool has_caption = std::regex_search(paragraph, said, caption);
      if (!has_caption || svg.find(said[1]) == std::string::npos) {
        complaints +=
            path + " shows " + image[1].str() +
            (has_caption ? ", which does not say: " + said[1].str() : " without a caption") + "\n";
      }
    }
  }
  return complaints;
}

/// Sections of MATHS.md that a source cites and that do not exist.
std::string missing_sections(const Pages& sources, const std::string& maths) {
  static const std::regex cited(R"(MATHS\.md,? sections? ([0-9])(?:(?:,| and) ([0-9]))?)");
  std::string complaints;
  for (const auto& [path, text] : sources) {
    std::string joined;  // a citation may run over the end of a line of a comment
    for (const std::string& line : lines_of(text)) {
      const std::size_t begin = line.find_first_not_of(" /");
      joined += (begin == std::string::npos ? "" : line.substr(begin)) + " ";
    }
    for (std::size_t at = joined.find("MATHS.md"); at != std::string::npos;
         at = joined.find("MATHS.md", at + 1)) {
      const std::string here = joined.substr(at, 60);
      std::smatch match;
      if (!std::regex_search(here, match, cited)) continue;
      for (std::size_t i = 1; i < match.size(); ++i) {
        if (match[i].matched && maths.find("\n## " + match[i].str() + ". ") == std::string::npos) {
          complaints += path + " cites section " + match[i].str() + "\n";
        }
      }
    }
  }
  return complaints;
}

/// Files that name another version than config.hpp, or none.
std::string other_versions(const std::string& config, const Pages& named) {
  std::string version, minor;
  for (const char* part : {"MAJOR", "MINOR", "PATCH"}) {
    std::smatch match;
    const std::regex line("#define FOVEA_VERSION_" + std::string(part) + " ([0-9]+)");
    if (!std::regex_search(config, match, line)) return "config.hpp lacks " + std::string(part);
    minor = version;
    version += (version.empty() ? "" : ".") + match[1].str();
  }
  const std::map<std::string, std::string> asked = {
      {"CMakeLists.txt", "project(fovea VERSION " + version + " "},
      {"README.md", "find_package(fovea " + minor + " "},
      {".github/CHANGELOG.md", "## " + version},
  };
  std::string complaints;
  for (const auto& [path, text] : asked) {
    const auto page = named.find(path);
    if (page == named.end() || page->second.find(text) == std::string::npos) {
      complaints += path + " does not say " + text + "\n";
    }
  }
  static const std::regex wanted(R"(find_package\(fovea ([0-9.]+))");
  for (const auto& [path, page] : named) {
    for (std::sregex_iterator at(page.begin(), page.end(), wanted), end; at != end; ++at) {
      if ((*at)[1] != minor) complaints += path + " asks for " + (*at)[1].str() + "\n";
    }
  }
  return complaints;
}

/// Presets that the workflow runs and CMakePresets.json does not have, and missing scripts.
std::string missing_commands(const std::string& workflow, const std::string& presets) {
  static const std::regex list(R"(preset: \[([^\]]*)\])");
  static const std::regex named(R"(--preset ([a-z][a-z0-9-]*))");
  static const std::regex word(R"([a-z][a-z0-9-]*)");
  static const std::regex script(R"(run: (?:bash )?((?:cmake/|\.ci/)[a-z./]+))");
  std::set<std::string> asked;
  std::string complaints;
  for (const std::string& line : lines_of(workflow)) {
    std::smatch match;
    if (std::regex_search(line, match, named)) asked.insert(match[1]);
    if (std::regex_search(line, match, script) && source_text(match[1]).empty()) {
      complaints += "no script " + match[1].str() + "\n";
    }
    if (!std::regex_search(line, match, list)) continue;
    const std::string all = match[1];
    for (std::sregex_iterator at(all.begin(), all.end(), word), end; at != end; ++at) {
      asked.insert(at->str());
    }
  }
  for (const std::string& preset : asked) {
    const std::string name = "\"name\": \"" + preset + "\"";
    if (presets.find(name) == std::string::npos) complaints += "no preset " + preset + "\n";
  }
  return complaints;
}

/// Operators of the README's table that are in no family of the API's reference, and names there
/// that no header declares.
std::string not_in_families(const std::string& readme, const std::string& families,
                            const Pages& headers) {
  static const std::regex name("`([A-Z][A-Za-z]+)[<`]");
  static const std::regex member(R"(\\(class|struct) fovea::([A-Za-z]+)\n +\\ingroup )");
  std::set<std::string> grouped;
  std::string complaints;
  for (std::sregex_iterator at(families.begin(), families.end(), member), end; at != end; ++at) {
    grouped.insert((*at)[2]);
    const std::string declaration = "\n" + (*at)[1].str() + " " + (*at)[2].str();
    if (std::none_of(headers.begin(), headers.end(), [&](const auto& header) {
          return header.second.find(declaration + " ") != std::string::npos ||
                 header.second.find(declaration + "\n") != std::string::npos;
        })) {
      complaints += "no header declares " + (*at)[2].str() + "\n";
    }
  }
  for (const std::string& line : lines_of(readme)) {
    const std::string first = line.substr(0, line.find('|', 1));
    if (!line.starts_with("| `")) continue;
    for (std::sregex_iterator at(first.begin(), first.end(), name), end; at != end; ++at) {
      if (grouped.count((*at)[1]) == 0) complaints += (*at)[1].str() + " is in no family\n";
    }
  }
  return complaints;
}

/// Operators of the README's table whose header says "There is no decoder" although their row ends
/// with D, or does not say it although the row lacks the D.
std::string wrong_decoders(const std::string& readme, const Pages& headers) {
  static const std::regex name("`([A-Z][A-Za-z]+)[<`]");
  static const std::regex margin("\n */// ?");
  std::string complaints;
  for (const std::string& line : lines_of(readme)) {
    std::smatch op;
    if (!line.starts_with("| `") || !std::regex_search(line, op, name)) continue;
    const auto declares = [&](const auto& page) {
      return std::regex_search(page.second, std::regex("\nclass " + op[1].str() + "\\s"));
    };
    const auto header = std::ranges::find_if(headers, declares);
    if (header == headers.end()) {
      complaints += "no header declares " + op[1].str() + "\n";
      continue;
    }
    const std::string words = std::regex_replace(header->second, margin, " ");
    const bool has_decoder = words.find("There is no decoder") == std::string::npos;
    if (line.ends_with(" D |") != has_decoder) complaints += op[1].str() + "\n";
  }
  return complaints;
}

Pages named_versions() {
  Pages pages = our_pages();
  pages["CMakeLists.txt"] = source_text("CMakeLists.txt");
  return pages;
}

TEST(Documents, FiguresEqualTheResults) {
  Figures figures(source_text);
  const bool writes = std::getenv("FOVEA_WRITE_DOCUMENTS") != nullptr;
  std::size_t marked = 0;
  for (const auto& [path, page] : our_pages()) {
    SCOPED_TRACE(path);
    std::string made;
    ASSERT_NO_THROW(made = figures.made_again(page));
    if (page.find("<!-- end -->") != std::string::npos) ++marked;
    if (writes && made != page) {
      std::ofstream(fs::path(FOVEA_SOURCE_DIR) / path, std::ios::binary) << made;
    } else {
      EXPECT_EQ(made, page) << "cmake --build build/release --target documents generates them";
    }
  }
  EXPECT_GE(marked, 2u);
}

/// The headers' texts by their path below include/.
Pages our_headers() {
  Pages headers;
  for (const auto& [path, text] : sources({".hpp"})) {
    if (path.starts_with("include/")) headers[path.substr(8)] = text;
  }
  return headers;
}

TEST(Documents, ThePictureOfLayersEqualsTheIncludes) {
  const fs::path picture = fs::path(FOVEA_SOURCE_DIR) / "include/fovea/layers.svg";
  const std::string drawn = LayersPicture(our_headers()).svg();
  if (std::getenv("FOVEA_WRITE_DOCUMENTS") != nullptr) {
    std::ofstream(picture, std::ios::binary) << drawn;
  } else {
    EXPECT_TRUE(drawn == text_of(picture))
        << "include/fovea/layers.svg: cmake --build build/release --target documents draws it";
  }
}

TEST(Documents, FiguresHaveASource) {
  std::size_t pages = 0;
  for (const auto& [path, page] : our_pages()) {
    if (path != "README.md" && !path.starts_with("bench/") && !path.starts_with("examples/"))
      continue;
    EXPECT_EQ(figures_of_no_source(page), "") << path;
    ++pages;
  }
  EXPECT_GE(pages, 15u);
}

TEST(Documents, CaptionsEqualThoseOfPictures) {
  EXPECT_EQ(pictures_without_captions(our_pages()), "");
}

/// Longer material belongs on other pages.
TEST(Documents, EntryPagesAreShort) {
  EXPECT_LE(lines_of(our_pages().at("README.md")).size(), 250u);
  EXPECT_LE(lines_of(our_pages().at("include/fovea/README.md")).size(), 250u);
  EXPECT_LE(lines_of(our_pages().at("bench/README.md")).size(), 400u);
}

TEST(Documents, LinksHaveTargets) {
  EXPECT_GE(our_pages().size(), 7u);
  EXPECT_EQ(broken_links(our_pages()), "");
}

TEST(Documents, PagesNameNothingOutside) { EXPECT_EQ(outside_pages(our_pages()), ""); }

TEST(Documents, CitedSectionsExist) {
  EXPECT_EQ(
      missing_sections(sources({".hpp", ".cpp", ".md"}), source_text("include/fovea/MATHS.md")),
      "");
}

TEST(Documents, OneVersion) {
  EXPECT_EQ(other_versions(source_text("include/fovea/core/config.hpp"), named_versions()), "");
}

TEST(Documents, TheWorkflowRunsExistingPresets) {
  const std::string workflow = source_text(".github/workflows/ci.yml");
  EXPECT_NE(workflow.find(".ci/run"), std::string::npos);
  EXPECT_NE(workflow.find("libcxx, aarch64, fuzz]"), std::string::npos);
  EXPECT_EQ(missing_commands(workflow, source_text("CMakePresets.json")), "");
}

TEST(Documents, EveryOperatorIsInAFamily) {
  const std::string readme = source_text("README.md"),
                    families = source_text("cmake/operators.dox");
  EXPECT_EQ(not_in_families(readme, families, our_headers()), "");
  EXPECT_GT(families.size(), 2000u);
}

TEST(Documents, TheTableOfOperatorsKnowsTheDecoders) {
  EXPECT_EQ(wrong_decoders(source_text("README.md"), our_headers()), "");
}

#if FOVEA_FULL_SUITE
/// The help is printed without a build.
TEST(Documents, TheComparisonHasHelp) {
  std::FILE* const out = popen("bash '" FOVEA_SOURCE_DIR "/cmake/compare.sh' --help 2>&1", "r");
  ASSERT_NE(out, nullptr);
  std::string help;
  for (int c = 0; (c = std::fgetc(out)) != EOF;) help += static_cast<char>(c);
  EXPECT_EQ(pclose(out), 0) << help;
  EXPECT_NE(help.find("--repeat"), std::string::npos) << help;
}
#endif

// Rules that are broken on purpose.

constexpr const char* kResults = R"({"machine": "a \"fast\" one", "seconds": 12.345,
  "date": "2026-11-20T19:26:56Z", "list": [
  {"name": "a", "n": 1, "ms": 1.2345, "parts": [1, 2.5]}, {"name": "a", "n": 2, "ms": 235.1},
  {"name": "b", "n": 1, "ms": "2.50"}], "notes": [{"name": "b", "note": "slow"}]})";

std::string made_again(const std::string& page, const std::string& results = kResults) {
  return Figures([&](const std::string& path) { return path == "x.json" ? results : ""; })
      .made_again(page);
}

TEST(Figures, OfTables) {
  const std::string marker =
      "<!-- table x.json list name x.json notes\n| name | ms | of 2 | parts | |\n"
      "| `{name}` | {ms n=1 3} | {ms? n=2 3} | {parts? .1} {parts? mean.2} | {note?} |\n-->";
  EXPECT_EQ(made_again(marker + "old<!-- end --> more"),
            marker +
                "\n| name | ms | of 2 | parts | |\n|---|---|---|---|---|\n"
                "| `a` | 1.23 | 235 | 1.0, 2.5 1.75 |  |\n"
                "| `b` | 2.50 |  |   | slow |\n<!-- end --> more");
}

TEST(Figures, OfNamedRows) {
  const std::string marker =
      "<!-- table x.json list name\n| | each | to b |\n"
      "| {$2} | {ms*1000/$3 n=1 .0} | {$1:ms/$4:ms n=1 .1} |\na | first | 2 | b\n-->";
  EXPECT_EQ(made_again(marker + "<!-- end -->"),
            marker + "\n| | each | to b |\n|---|---|---|\n| first | 617 | 0.5 |\n<!-- end -->");
}

TEST(Figures, InALine) {
  const std::string marker = "takes <!-- figure x.json seconds .1-->";
  EXPECT_EQ(made_again(marker + "99<!-- end --> s"), marker + "12.3<!-- end --> s");
  EXPECT_EQ(made_again("<!-- figure x.json machine --><!-- end -->"),
            "<!-- figure x.json machine -->a \"fast\" one<!-- end -->");
  EXPECT_EQ(made_again("<!-- figure x.json date day --><!-- end -->"),
            "<!-- figure x.json date day -->2026-11-20<!-- end -->");
  for (const char* page : {"<!-- a comment --> 3", "\n```\n<!-- figure FILE NAME -->\n```\n"}) {
    EXPECT_EQ(made_again(page), page);
  }
}

TEST(Figures, CodeOfExamples) {
  const std::string source = "int main() {\n  call(a,\n       b);\n\n  if (c) call(d);\n}\n";
  const std::string marker = "<!-- code x.json\ncall(\nif (c)\n-->";
  EXPECT_EQ(made_again(marker + "<!-- end -->", source),
            marker + "\n```cpp\ncall(a,\n     b);\n\nif (c) call(d);\n```\n<!-- end -->");
  EXPECT_EQ(made_again("<!-- code x.json\ncall(\ncall(\n--><!-- end -->", source),
            "<!-- code x.json\ncall(\ncall(\n-->\n```cpp\ncall(a,\n     b);\n```\n<!-- end -->");
  EXPECT_THROW(made_again("<!-- code x.json\ncall(\nelse\n--><!-- end -->", source),
               std::runtime_error);
}

TEST(Figures, PendingOnesAreKeptUntilTheirFilesExist) {
  const std::string pending = "<!-- pending figure x.json seconds .1 -->LATER<!-- end -->";
  EXPECT_EQ(made_again(pending, ""), pending);
  EXPECT_EQ(made_again(pending), "<!-- figure x.json seconds .1 -->12.3<!-- end -->");
}

TEST(Figures, MarkersWithoutTargets) {
  for (const char* page :
       {"<!-- figure y.json seconds --><!-- end -->", "<!-- figure x.json minutes --><!-- end -->",
        "<!-- figure x.json seconds -->12", "<!-- figure x.json list --><!-- end",
        "<!-- table x.json list name\n| |\n| {ms n=3} |\n--><!-- end -->",
        "<!-- table x.json list name\n| |\n| {ms} |\nc\n--><!-- end -->"}) {
    EXPECT_THROW(made_again(page), std::runtime_error) << page;
  }
  for (const char* text : {"", "{", "{\"a\"}", "[1 2]", "{\"a\": \"b}", "{} {}"}) {
    EXPECT_THROW(JsonReader::read(text), std::runtime_error) << text;
  }
}

TEST(DocumentsBroken, AFigure) {
  Figures figures(source_text);
  std::string page = our_pages().at("bench/results/softmax.md");
  const std::size_t at = page.find("| 0.");
  ASSERT_NE(at, std::string::npos);
  char& digit = page[at + 4];
  digit = digit == '1' ? '2' : '1';
  EXPECT_EQ(figures.made_again(page), our_pages().at("bench/results/softmax.md"));
}

TEST(DocumentsBroken, ThePictureOfLayers) {
  Pages headers = our_headers();
  const std::string drawn = LayersPicture(headers).svg();
  headers["fovea/simd/isa.hpp"] += "#include \"fovea/patterns.hpp\"\n";
  EXPECT_NE(LayersPicture(headers).svg(), drawn);
  headers["fovea/patterns/pattern.hpp"] += "#include \"fovea/simd/isa.hpp\"\n";
  EXPECT_THROW(LayersPicture{headers}, std::runtime_error);
  headers = our_headers();
  headers["fovea/cellar/view.hpp"] = "";
  EXPECT_THROW(LayersPicture(headers).svg(), std::runtime_error);
}

TEST(DocumentsBroken, AFigureOfNoSource) {
  for (const char* line : {"It takes 3.5 ms.", "twice: 2.0x", "| 64 MiB |", "about 5 %", "30 s"}) {
    EXPECT_NE(figures_of_no_source(line), "") << line;
    EXPECT_EQ(figures_of_no_source("<!-- figure a b -->" + std::string(line) + "<!-- end -->"), "");
  }
  EXPECT_EQ(figures_of_no_source("4 maps, `8 ms`, 3 seeds, 16 xyz\n```\n3 ms\n```\n    4 ms\n"),
            "");
}

TEST(DocumentsBroken, Captions) {
  const std::string made = "<!-- figure x.json caption -->9 heads<!-- end -->.\n";
  const Pages pages = {
      {"a.md", "![x](results/x.svg)\n\n![y](results/y.svg)\n\nWith\n" + made},
      {"b/b.md", "![x](../results/x.svg)\n\n9 heads.\n\n" + made + "![z](z.svg)\n"}};
  const auto read = [](const std::string& path) {
    return std::string(path == "results/x.svg" ? ">8, 9 heads<" : ">8 heads<");
  };
  EXPECT_EQ(pictures_without_captions(pages, read),
            "a.md shows results/y.svg, which does not say: 9 heads\n"
            "b/b.md shows ../results/x.svg without a caption\n");
}

TEST(DocumentsBroken, Links) {
  const Pages pages = {{"a/b.md", "[x](c.md) [y](#an-end) [z](../README.md#none) `[](int)`"},
                       {"README.md", "# An end\n[x](a/b.md) [y](#an-end) [z](https://x.y/z)"}};
  EXPECT_EQ(broken_links(pages),
            "a/b.md links to c.md\na/b.md links to #an-end\na/b.md links to ../README.md#none\n");
}

TEST(DocumentsBroken, OutsidePages) {
  EXPECT_EQ(outside_pages({{"a.md", "as shared/x and design.md say"}}),
            "a.md names design.md\na.md names shared/\n");
}

TEST(DocumentsBroken, Sections) {
  const std::string maths = "# Maths\n\n## 1. One\n\n## 2. Two\n";
  const Pages cites = {{"a.hpp", "/// (MATHS.md, sections 1 and 5)"},
                       {"b.hpp", "/// as MATHS.md,\n/// section 3"},
                       {"c.hpp", "/// MATHS.md section 2"}};
  EXPECT_EQ(missing_sections(cites, maths), "a.hpp cites section 5\nb.hpp cites section 3\n");
}

TEST(DocumentsBroken, Families) {
  const Pages headers = {
      {"a.hpp", "\nclass A : public B {};\ntemplate <class T>\nclass Map {};\n"}};
  EXPECT_EQ(not_in_families("| `A`, `Map<Ts...>` | of `C` |\n| `component` |\n",
                            "/** \\class fovea::A\n    \\ingroup x */\n/** \\class fovea::Gone\n"
                            "    \\ingroup x */\n",
                            headers),
            "no header declares Gone\nMap is in no family\n");
}

TEST(DocumentsBroken, Decoders) {
  const Pages headers = {{"a.hpp", "\nclass Aa : public B {};\n"},
                         {"b.hpp", "\n/// There is no\n/// decoder.\nclass Bb {};\n"},
                         {"c.hpp", "\n  /// There is no decoder.\nclass Cc {};\n"},
                         {"d.hpp", "\nclass Dd\n    : public B {};\n"}};
  const std::string readme =
      "| `Aa` | F B D |\n| `Bb<Map>` | F B |\n| `Cc` | F B D |\n| `Dd` | F B |\n| `Ee` | F B |\n";
  EXPECT_EQ(wrong_decoders(readme, headers), "Cc\nDd\nno header declares Ee\n");
}

TEST(DocumentsBroken, Workflow) {
  const std::string presets = R"({"name": "release"}, {"name": "dev"})";
  EXPECT_EQ(missing_commands("- run: cmake --preset tsan\n- run: bash cmake/none.sh\n"
                             "  preset: [release, asan, dev]\n- run: bash cmake/test.sh\n",
                             presets),
            "no script cmake/none.sh\nno preset asan\nno preset tsan\n");
}

TEST(DocumentsBroken, Versions) {
  std::string config = source_text("include/fovea/core/config.hpp");
  const std::string line = "FOVEA_VERSION_MINOR ";
  config.replace(config.find(line), line.size() + 1, line + "7");
  const std::string complaints = other_versions(config, named_versions());
  for (const char* path : {"CMakeLists.txt", "README.md", "CHANGELOG.md"}) {
    EXPECT_NE(complaints.find(path), std::string::npos) << path;
  }
}

}  // namespace fovea_test::structure_documents
