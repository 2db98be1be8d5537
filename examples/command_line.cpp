// SPDX-License-Identifier: MIT
#include "command_line.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <utility>

namespace program {

namespace {

constexpr const char* kOptions = "options";  // the only section, unless there are others
constexpr std::size_t kNameColumn = 22;
constexpr std::size_t kLineWidth = 98;

/// The name of an option or that of its value in "--json FILE".
std::string option_of(const std::string& name) { return name.substr(0, name.find(' ')); }
std::string value_of(const std::string& name) {
  const std::size_t space = name.find(' ');
  return space == name.npos ? "" : name.substr(space + 1);
}

/// The paragraphs of a text, separated by empty lines, in lines of that width.
std::string wrapped(const std::string& text, std::size_t width = kLineWidth) {
  std::string lines;
  std::size_t used = 0;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    if (line.empty() && used > 0) {
      lines += "\n\n";
      used = 0;
    }
    std::istringstream words(line);
    for (std::string word; words >> word; used += word.size() + 1) {
      const bool fits = used + word.size() <= width;
      if (used > 0) lines += fits ? ' ' : '\n';
      if (!fits) used = 0;
      lines += word;
    }
  }
  return lines;
}

/// The same in the column after the names.
std::string in_column(const std::string& text) { return wrapped(text, kLineWidth - kNameColumn); }

}  // namespace

std::vector<std::string> parts_of(const std::string& option, const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (parts.back().empty()) throw ArgumentError(option + ": a part of '" + text + "' is empty");
    begin = end + 1;
  }
  return parts;
}

CommandLine::CommandLine(const std::string& program, const std::string& about)
    : app_(std::make_unique<CLI::App>(wrapped(program + ": " + about), program)),
      section_(kOptions) {
  app_->get_formatter()->column_width(kNameColumn);
  app_->set_help_flag();  // parse() adds it behind the others
}

CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& name, bool& to, const std::string& help) {
  // The text hides the list of options that exclude it.
  app_->add_flag(name, to, in_column(help))
      ->option_text(" ")
      ->group(section_)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void CommandLine::add(const std::string& name, std::string& to, const std::string& help) {
  add_value(name, to, help, [&to](const std::string& option, const std::string& text) {
    if (text.empty()) throw ArgumentError(option + " needs a value");
    to = text;
  });
}

void CommandLine::add_any(const std::string& name, std::string& to, const std::string& help) {
  add_value(name, to, help, [&to](const std::string&, const std::string& text) { to = text; });
}

void CommandLine::add_value(
    const std::string& name, const std::string& shown, const std::string& help,
    const std::function<void(const std::string&, const std::string&)>& set) {
  const std::string option = option_of(name);
  app_->add_option(
          option, [=](const CLI::results_t& texts) { return set(option, texts[0]), true; },
          in_column(help))
      ->option_text(value_of(name) + (shown.empty() ? "" : "=" + shown))
      ->group(section_);
}

void CommandLine::add_list(const std::string& name, std::vector<std::string>& to,
                           const std::string& help) {
  add_value(
      name, CLI::detail::join(to, ","), help,
      [&to](const std::string& option, const std::string& text) { to = parts_of(option, text); });
}

void CommandLine::add_each(const std::string& name, std::vector<std::string>& to,
                           const std::string& help) {
  app_->add_option(option_of(name), to, in_column(help))
      ->option_text(value_of(name))
      ->allow_extra_args(false)
      ->group(section_);
}

void CommandLine::add_words(const std::string& name, std::vector<std::string>& to,
                            const std::string& help) {
  app_->add_option(name, to, in_column(help))->type_name("");
}

void CommandLine::excludes(const std::string& option, const std::vector<std::string>& others) {
  for (const std::string& other : others) {
    app_->get_option(option)->excludes(app_->get_option(other));
  }
}

void CommandLine::needs(const std::string& option, const std::vector<std::string>& others) {
  for (const std::string& other : others) app_->get_option(option)->needs(app_->get_option(other));
}

void CommandLine::footer(const std::string& text) { app_->footer(wrapped(text)); }

bool CommandLine::parse(int argc, const char* const* argv, bool prints) {
  app_->set_help_flag("-h,--help", "this text")->group(section_ == kOptions ? kOptions : "help");
  // CLI11 would read the next word as the value of "--name=", even if it is the name of another
  // option.
  const auto option_named = [&](const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    return name.starts_with("--") ? app_->get_option_no_throw(name) : nullptr;
  };
  const std::vector<std::string> given(argv + std::min(argc, 1), argv + argc);
  std::vector<std::string> words;
  for (auto word = given.begin(); word != given.end(); ++word) {
    const CLI::Option* const option = option_named(*word);
    if (option == nullptr || option->get_items_expected_max() == 0) {
      words.push_back(*word);
      if (*word == "--")
        words.insert(words.end(), std::exchange(word, given.end() - 1) + 1, given.end());
    } else if (const std::size_t equals = word->find('='); equals != word->npos) {
      words.insert(words.end(), {word->substr(0, equals), word->substr(equals + 1)});
    } else if (word + 1 == given.end() || word[1] == "--" || option_named(word[1]) != nullptr) {
      throw ArgumentError(*word + " needs a value");
    } else {
      words.insert(words.end(), {word[0], word[1]});
      ++word;
    }
  }
  try {
    std::reverse(words.begin(), words.end());
    app_->parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    const std::string text = CLI::detail::find_and_replace(app_->help(), "\n\n\n", "\n\n");
    if (prints) std::fputs(text.c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw ArgumentError(error.what());
  }
  return true;
}

bool CommandLine::has(const std::string& option) const { return app_->count(option) > 0; }

}  // namespace program
