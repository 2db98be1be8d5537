// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io icu)
// The rules of BERT's tokenizer, on small vocabularies. examples/models/check_sentences.py compares
// its tokens with the reference implementation's.
#include "examples/models/word_piece.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "support/scratch_folder.hpp"

namespace fovea_test::examples_models_word_piece {

using fovea::Index;
using models::WordPiece;
using Words = std::vector<std::string>;
using Ids = std::vector<Index>;

const Words kVocabulary = {"[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a",
                           "u",     "aff",   "##ff",  "a",  "[",     "]",      "."};

Words words(std::string_view text, const models::WordPieceOptions& options = {}) {
  return WordPiece(kVocabulary, "words", options).words(text);
}

/// Without [CLS] and [SEP].
Ids pieces(std::string_view text, const Words& vocabulary = kVocabulary) {
  Ids ids = WordPiece(vocabulary, "words").encode(text, 1000).ids;
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  return {ids.begin() + 1, ids.end() - 1};
}

TEST(WordPiece, RemovesControlsAndSplitsAtSpaces) {
  EXPECT_EQ(words(" a\tb\nc\rd\xC2\xA0"
                  "e\xE3\x80\x80"
                  "f  "),
            (Words{"a", "b", "c", "d", "e", "f"}));
  // A null, a bell, a soft hyphen, a zero-width joiner, one of private use.
  EXPECT_EQ(words(std::string_view("a\0b\ac\xC2\xAD"
                                   "d\xE2\x80\x8D"
                                   "e\xEE\x80\x80"
                                   "f",
                                   16)),
            (Words{"abcdef"}));
  EXPECT_EQ(words("a\vb\fc\x7f"), (Words{"abc"}));  // controls, though C calls two of them spaces
  EXPECT_EQ(words(""), Words{});
  EXPECT_EQ(words(" \t "), Words{});
}

TEST(WordPiece, SeparatesPunctuation) {
  EXPECT_EQ(words("don't (stop)..."), (Words{"don", "'", "t", "(", "stop", ")", ".", ".", "."}));
  EXPECT_EQ(
      words("a$b^c`d~e|f+g=h<i"),  // no punctuation in Unicode, but here
      (Words{"a", "$", "b", "^", "c", "`", "d", "~", "e", "|", "f", "+", "g", "=", "h", "<", "i"}));
  EXPECT_EQ(words("a_b"), (Words{"a", "_", "b"}));
  EXPECT_EQ(words("wait—no… «so»¿"), (Words{"wait", "—", "no", "…", "«", "so", "»", "¿"}));
  EXPECT_EQ(words("5€ × ½"), (Words{"5€", "×", "½"}));  // symbols are none
}

TEST(WordPiece, RemovesAccentsAndUpperCase) {
  EXPECT_EQ(words("Café ÀÉÎÕÜ Ångström"), (Words{"cafe", "aeiou", "angstrom"}));
  EXPECT_EQ(words("cafe\xCC\x81 \xCC\x81"), (Words{"cafe"}));  // a separate mark
  EXPECT_EQ(words("Žluťoučký ŁÓDŹ ØRE ß ẞ"), (Words{"zlutoucky", "łodz", "øre", "ß", "ß"}));
  EXPECT_EQ(words("ΣΊΣΥΦΟΣ ΐ Ώ ᾧ"), (Words{"σισυφοσ", "ι", "ω", "ω"}));  // no last sigma
  EXPECT_EQ(words("ЁЖ Й Ї"), (Words{"еж", "и", "і"}));
  EXPECT_EQ(words("Ệ ǅ İ ı K Å"), (Words{"e", "ǆ", "i", "ı", "k", "a"}));
  EXPECT_EQ(words("ﬁ ² Ⅳ Ａ"), (Words{"ﬁ", "²", "ⅳ", "ａ"}));  // no compatibility
  EXPECT_EQ(words("한글"), (Words{"\u1112\u1161\u11ab\u1100\u1173\u11af"}));
  EXPECT_EQ(words("가"), (Words{"\u1100\u1161"}));
  EXPECT_EQ(words("𐐀 𝐀"), (Words{"𐐨", "𝐀"}));
  EXPECT_EQ(words("ொ"), (Words{"\u0bc6\u0bbe"}));  // one that becomes two
}

TEST(WordPiece, KeepsCaseForCasedModels) {
  EXPECT_EQ(words("Café ΣΑ", {.lower_case = false}), (Words{"Café", "ΣΑ"}));
  EXPECT_EQ(words("e\xCC\x81.", {.lower_case = false}), (Words{"e\xCC\x81", "."}));
}

TEST(WordPiece, IdeographsAreWords) {
  EXPECT_EQ(words("abc我们d"), (Words{"abc", "我", "们", "d"}));
  EXPECT_EQ(words("日本語です"), (Words{"日", "本", "語", "てす"}));
  EXPECT_EQ(words("\uF900x\U0002F800"), (Words{"\u8C48", "x", "\u4E3D"}));  // their meaning
  EXPECT_EQ(words("我们", {.space_ideographs = false}), (Words{"我们"}));
}

TEST(WordPiece, RemovesInvalidUtf8) {
  EXPECT_EQ(words("a\xff"
                  "b\xc3(\xe2\x82z\x80\xed\xa0\x80"
                  "y\xf4\x90\x80\x80w\xc0\xaf"
                  "v"),
            (Words{"ab", "(", "zywv"}));
  EXPECT_EQ(words("a\xe2\x82"), (Words{"a"}));  // cut off
  EXPECT_EQ(words("a\xEF\xBF\xBD"
                  "b"),
            (Words{"ab"}));
  std::string all;
  for (int c = 1; c < 256; ++c) all += {static_cast<char>(c), static_cast<char>(c ^ 0x55)};
  for (std::size_t n = 0; n < all.size(); ++n) {
    for (const std::string& word : words(std::string_view(all).substr(n))) {
      EXPECT_FALSE(word.empty());
    }
  }
}

TEST(WordPiece, EveryCharacterIsReadAsItIsWritten) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    models::append_character(text, c);
    std::string_view rest = text;
    ASSERT_EQ(models::take_character(rest), c);
    ASSERT_TRUE(rest.empty());
  }
}

/// Later versions of Unicode than the reference's have other categories, and more characters.
TEST(WordPiece, CharactersAreThoseOfUnicode8) {
  EXPECT_EQ(words("a\u1734b"), (Words{"ab"}));                        // no mark since Unicode 14
  EXPECT_EQ(words("a\u1885\u1886b"), (Words{"a\u1885\u1886b"}));      // marks since Unicode 9
  EXPECT_EQ(words("a\ua9bdb"), (Words{"a\ua9bdb"}));                  // a mark since Unicode 11
  EXPECT_EQ(words("a\u166db"), (Words{"a", "\u166d", "b"}));          // no punctuation since 12
  EXPECT_EQ(words("a\U000111c9b"), (Words{"a", "\U000111c9", "b"}));  // nor this one since 11
  EXPECT_EQ(words("a\u0898b"), (Words{"a\u0898b"}));                  // a mark of Unicode 14
  EXPECT_EQ(words("a\u2e52b"), (Words{"a\u2e52b"}));                  // punctuation of 13
  EXPECT_EQ(words("a\u0890b"), (Words{"a\u0890b"}));                  // a format character of 14
  EXPECT_EQ(words("\U00011938"), (Words{"\U00011938"}));              // one of 13 that has parts
}

TEST(WordPiece, MatchesTheLongestPiece) {
  EXPECT_EQ(pieces("unaffable"), (Ids{3, 4, 5}));
  EXPECT_EQ(pieces("UNAFFABLE."), (Ids{3, 4, 5, 13}));
  EXPECT_EQ(pieces("uffa"), (Ids{7, 9, 6}));  // u ##ff ##a
  EXPECT_EQ(pieces("aff a"), (Ids{8, 10}));
  EXPECT_EQ(pieces("affz"), (Ids{0}));  // one unknown for all of a word
  EXPECT_EQ(pieces("z unz un"), (Ids{0, 0, 3}));
  EXPECT_EQ(pieces("é", {"[UNK]", "[CLS]", "[SEP]", "e"}), (Ids{3}));
  EXPECT_EQ(pieces("日本", {"[UNK]", "[CLS]", "[SEP]", "日", "##本", "本"}), (Ids{3, 5}));
  EXPECT_EQ(pieces("κόσμε", {"[UNK]", "[CLS]", "[SEP]", "κο", "##σμ", "##ε"}), (Ids{3, 4, 5}));
}

TEST(WordPiece, AWordOfMoreThanAHundredCharactersIsUnknown) {
  const Words vocabulary = {"[UNK]", "[CLS]", "[SEP]", "ж", "##ж"};
  std::string word;
  for (int i = 0; i < 100; ++i) word += "ж";
  EXPECT_EQ(pieces(word, vocabulary).size(), 100u);
  EXPECT_EQ(pieces(word + "ж", vocabulary), (Ids{0}));
}

TEST(WordPiece, SpecialTokensMayStandInTheText) {
  EXPECT_EQ(pieces("a[SEP]a [CLS] un[UNK]"), (Ids{10, 2, 10, 1, 3, 0}));
  EXPECT_EQ(pieces("[sep]"), (Ids{11, 0, 12}));   // not in this case
  EXPECT_EQ(pieces("[MASK]"), (Ids{11, 0, 12}));  // not in this vocabulary
  EXPECT_EQ(pieces("[[SEP]]"), (Ids{11, 2, 12}));
}

TEST(WordPiece, TruncatesLongTextsAndCountsTokens) {
  const WordPiece tokenizer(kVocabulary, "words");
  EXPECT_EQ(tokenizer.encode("a a a", 5).ids, (Ids{1, 10, 10, 10, 2}));
  EXPECT_EQ(tokenizer.encode("a a a", 5).left_out, 0u);
  EXPECT_EQ(tokenizer.encode("a un a a", 4).ids, (Ids{1, 10, 3, 2}));
  EXPECT_EQ(tokenizer.encode("a un a a", 4).left_out, 2u);
  EXPECT_EQ(tokenizer.encode("", 4).ids, (Ids{1, 2}));
  EXPECT_EQ(tokenizer.encode("a", 2).ids, (Ids{1, 2}));
}

TEST(WordPiece, VocabulariesAreFiles) {
  const ScratchFolder folder;
  const std::string path = folder / "vocab.txt";
  std::ofstream(path, std::ios::binary) << "[UNK]\r\n[CLS]\n[SEP]\n\nun\nun";
  const WordPiece tokenizer = WordPiece::read(path);
  EXPECT_EQ(tokenizer.size(), 6);
  EXPECT_EQ(tokenizer.encode("un", 9).ids, (Ids{1, 5, 2}));  // the last of two
  const auto message = [&] {
    try {
      WordPiece::read(path);
    } catch (const std::runtime_error& error) {
      return std::string(error.what()).substr(path.size());
    }
    return std::string("read");
  };
  std::ofstream(path) << "[UNK]\n[CLS]\n";
  EXPECT_EQ(message(), ": there is no [SEP] in it; expected a BERT vocabulary, one token per line");
  std::ofstream(path).close();
  EXPECT_EQ(message(), ": there is no [UNK] in it; expected a BERT vocabulary, one token per line");
  std::filesystem::remove(path);
  EXPECT_EQ(message(), ": cannot be read: No such file or directory");
}

}  // namespace fovea_test::examples_models_word_piece
