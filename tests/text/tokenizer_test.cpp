// The tokenizer on small hand-made vocabularies: added tokens, errors, limits. Ids of real vocabularies are in
// tokenizer_parity_test.cpp and test_tokenizer_parity.py; what is expected of added tokens here is what the tokenizers package
// gives for the same file.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace halfbyte {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tokenizer.json with the letters a to e, "ab" and a space, and what the arguments add. Empty parts are left out.
struct Parts {
  std::string added = "";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"ByteLevel"})";
  std::string model_extra = "";
  std::string vocab = R"({"a":0,"b":1,"c":2,"d":3,"e":4,"Ġ":5,"ab":6})";
  std::string merges = R"([["a","b"]])";

  std::string json() const {
    return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added + R"(],"normalizer":)" +
           normalizer + R"(,"pre_tokenizer":)" + pre_tokenizer + R"(,"post_processor":)" + post_processor +
           R"(,"decoder":)" + decoder + R"(,"model":{"type":"BPE",)" + model_extra + R"("vocab":)" + vocab +
           R"(,"merges":)" + merges + "}}";
  }
};

std::shared_ptr<const Tokenizer> make(const Parts& parts) {
  auto tokenizer = Tokenizer::from_tokenizer_json(parts.json(), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::vector<int32_t> ids(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  auto result = tokenizer.encode(text, options);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? std::move(result).value() : std::vector<int32_t>();
}

// One added token with id 10 and the given text and flags.
std::string added(const std::string& content, const std::string& flags = "") {
  return R"({"id":10,"content":")" + content + R"(","normalized":false)" + flags + "}";
}

TEST(Tokenizer, EncodesAndDecodes) {
  const auto tokenizer = make({});
  EXPECT_THAT(ids(*tokenizer, "abc ab"), ElementsAre(6, 2, 5, 6));
  EXPECT_EQ(tokenizer->decode(ids(*tokenizer, "abc ab")), "abc ab");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->token_bytes(5), " ");
  EXPECT_EQ(tokenizer->find(" "), 5);
  EXPECT_EQ(tokenizer->find("zz"), std::nullopt);
  EXPECT_EQ(tokenizer->pre_tokenizer_name(), "gpt-2");
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_THAT(ids(*tokenizer, ""), ElementsAre());
  std::vector<int32_t> out = {42};
  ASSERT_TRUE(tokenizer->encode("a", {}, out).ok());
  EXPECT_THAT(out, ElementsAre(42, 0)) << "ids are appended";
}

TEST(Tokenizer, MergesAsStringsToo) {
  Parts parts;
  parts.merges = R"(["a b"])";
  EXPECT_THAT(ids(*make(parts), "abc"), ElementsAre(6, 2));
}

TEST(AddedTokens, OnlyTheTemplateMayWriteSpecialOnes) {
  Parts parts;
  parts.added =
      added("<|e|>", R"(,"special":true)") + R"(,{"id":11,"content":"<t>","special":false,"normalized":false})";
  const auto tokenizer = make(parts);
  EXPECT_THAT(ids(*tokenizer, "a<|e|>b"), ElementsAre(0, 10, 1));
  EXPECT_THAT(ids(*tokenizer, "a<|e|>b", {.special_tokens = false}), ElementsAre(0, 4, 1))
      << "as text; < | > have no token";
  EXPECT_THAT(ids(*tokenizer, "a<t>b", {.special_tokens = false}), ElementsAre(0, 11, 1));
  EXPECT_TRUE(tokenizer->is_special(10));
  EXPECT_FALSE(tokenizer->is_special(11));
  EXPECT_FALSE(tokenizer->is_special(-1));
  EXPECT_FALSE(tokenizer->is_special(999));
  EXPECT_EQ(tokenizer->find("<t>"), 11);
  const std::vector<int32_t> mixed = {0, 10, 11, 1};
  EXPECT_EQ(tokenizer->decode(mixed), "a<|e|><t>b");
  EXPECT_EQ(tokenizer->decode(mixed, /*skip_special=*/true), "a<t>b");
  ASSERT_EQ(tokenizer->added_tokens().size(), 2u);
  EXPECT_EQ(tokenizer->added_tokens()[1].text, "<t>");
}

TEST(AddedTokens, LongestOfThoseThatBeginFirst) {
  Parts parts;
  parts.added = R"({"id":10,"content":"ab","normalized":false},{"id":11,"content":"abc","normalized":false},)"
                R"({"id":12,"content":"bcd","normalized":false})";
  parts.vocab = R"({"a":0,"b":1,"c":2,"d":3,"e":4,"Ġ":5})";
  parts.merges = "[]";
  const auto tokenizer = make(parts);
  EXPECT_THAT(ids(*tokenizer, "abcd"), ElementsAre(11, 3));
  EXPECT_THAT(ids(*tokenizer, "abd"), ElementsAre(10, 3));
  EXPECT_THAT(ids(*tokenizer, "abbcd"), ElementsAre(10, 12));
}

TEST(AddedTokens, StripAndSingleWord) {
  Parts parts;
  parts.added = added("<m>", R"(,"lstrip":true,"rstrip":true)");
  EXPECT_THAT(ids(*make(parts), "a  <m> b <m>"), ElementsAre(0, 10, 1, 10));
  parts.added = added("<m>", R"(,"lstrip":true)");
  EXPECT_THAT(ids(*make(parts), "a <m> b"), ElementsAre(0, 10, 5, 1));
  parts.added = added("cd", R"(,"single_word":true)");
  const auto tokenizer = make(parts);
  EXPECT_THAT(ids(*tokenizer, "cd acd cda cd."), ElementsAre(10, 5, 0, 2, 3, 5, 2, 3, 0, 5, 10));
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalText) {
  Parts parts;
  parts.normalizer = R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})";
  parts.added = R"({"id":10,"content":"<\u00e9>","normalized":true})";
  EXPECT_THAT(ids(*make(parts), "a<e\u0301>b"), ElementsAre(0, 10, 1));
  parts.added = R"({"id":10,"content":"<\u00e9>","normalized":false})";
  EXPECT_THAT(ids(*make(parts), "a<e\u0301>b<\u00e9>"), ElementsAre(0, 1, 10)) << "the first is other bytes";
}

TEST(AddedTokens, AHugeOneIsRefused) {
  Parts parts;
  parts.added = added(std::string(2000, 'x'));
  const auto tokenizer = Tokenizer::from_tokenizer_json(parts.json(), "t.json");
  EXPECT_THAT(tokenizer.status().message(), AllOf(HasSubstr("t.json"), HasSubstr("2000 bytes")));
}

TEST(Tokenizer, PostProcessorPutsTokensAround) {
  Parts parts;
  parts.post_processor =
      R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",)"
      R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],)"
      R"("pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[3],"tokens":["d"]},"</s>":{"id":"</s>","ids":[4,4],"tokens":["e","e"]}}}]})";
  const auto tokenizer = make(parts);
  EXPECT_THAT(ids(*tokenizer, "a"), ElementsAre(0));
  EXPECT_THAT(ids(*tokenizer, "a", {.special_tokens = true, .add_bos = true}), ElementsAre(3, 0, 4, 4));
  EXPECT_EQ(tokenizer->bos(), 3);
}

TEST(Tokenizer, SpaceInFrontWhereTheModelWantsIt) {
  Parts parts;
  parts.pre_tokenizer = R"({"type":"ByteLevel"})";  // add_prefix_space is true unless the file says otherwise
  parts.added = added("<m>");
  const auto tokenizer = make(parts);
  EXPECT_THAT(ids(*tokenizer, "ab c<m>d"), ElementsAre(5, 6, 5, 2, 10, 5, 3));
  EXPECT_THAT(ids(*tokenizer, " ab"), ElementsAre(5, 6));
}

TEST(Tokenizer, OtherRegularExpressionsAreNamed) {
  Parts parts;
  parts.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"b|\\s+"},"behavior":"Isolated",)"
      R"("invert":false},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
  const auto tokenizer = make(parts);
  EXPECT_EQ(tokenizer->pre_tokenizer_name(), R"(regex(b|\s+))");
  EXPECT_THAT(ids(*tokenizer, "ab a"), ElementsAre(0, 1, 5, 0)) << "the split keeps a and b apart";
}

// A SentencePiece vocabulary as transformers writes it. Ids: 0 <unk>, 1 <s>, then a newline's byte and the two of "\u00e9".
Parts sentencepiece() {
  Parts parts;
  parts.added = R"({"id":1,"content":"<s>","special":true,"normalized":false})";
  parts.normalizer = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"\u2581"},)"
                     R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"}]})";
  parts.pre_tokenizer = "null";
  parts.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},)"
                  R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  parts.model_extra = R"("byte_fallback":true,"fuse_unk":true,"unk_token":"<unk>",)";
  parts.vocab =
      R"({"<unk>":0,"<s>":1,"<0x0A>":2,"<0xC3>":3,"<0xA9>":4,"\u2581":5,"a":6,"b":7,"\u2581a":8,"\u2581ab":9})";
  parts.merges = R"(["\u2581 a","\u2581a b"])";
  return parts;
}

TEST(SentencePiece, MarksSpacesAndFallsBackToBytes) {
  const auto t = make(sentencepiece());
  EXPECT_EQ(t->pre_tokenizer_name(), "sentencepiece");
  EXPECT_THAT(ids(*t, "ab a"), ElementsAre(9, 8));
  EXPECT_THAT(ids(*t, " ab"), ElementsAre(5, 9)) << "the space in front comes before a space, too";
  EXPECT_THAT(ids(*t, "\u2581ab"), ElementsAre(5, 9)) << "the mark is a space";
  EXPECT_THAT(ids(*t, "b\n\u00e9"), ElementsAre(5, 7, 2, 3, 4));
  EXPECT_THAT(ids(*t, "xyb"), ElementsAre(5, 0, 7)) << "unknown characters fuse";
  EXPECT_THAT(ids(*t, "ab<s>a"), ElementsAre(9, 1, 8)) << "every part gets its space";
  EXPECT_THAT(ids(*t, "<0x0A>"), ::testing::Not(::testing::Contains(2))) << "a byte token is no text";
  EXPECT_THAT(ids(*t, ""), ElementsAre());
  EXPECT_EQ(t->token_bytes(9), " ab");
  EXPECT_EQ(t->token_bytes(2), "\n");
  EXPECT_TRUE(t->drops_first_space());
  // A long text takes the other way through the merges.
  std::string text;
  std::vector<int32_t> expected;
  for (int i = 0; i < 100; ++i) {
    text += i == 0 ? "ab" : " ab";
    expected.push_back(9);
  }
  EXPECT_EQ(ids(*t, text), expected);
}

TEST(SentencePiece, MetaspacePutsItsSpaceWhereItsSchemeSays) {
  Parts parts = sentencepiece();
  parts.normalizer = "null";
  const auto with_scheme = [&](const char* scheme) {
    parts.pre_tokenizer =
        std::string(R"({"type":"Metaspace","replacement":"\u2581","split":false,"prepend_scheme":")") + scheme + "\"}";
    return make(parts);
  };
  EXPECT_THAT(ids(*with_scheme("first"), "ab<s>ab"), ElementsAre(9, 1, 6, 7));
  EXPECT_THAT(ids(*with_scheme("always"), "ab<s>ab"), ElementsAre(9, 1, 9));
  EXPECT_THAT(ids(*with_scheme("always"), " ab"), ElementsAre(9)) << "not before a space";
  EXPECT_THAT(ids(*with_scheme("never"), "ab"), ElementsAre(6, 7));
}

TEST(SentencePiece, WhatCannotBeReadIsNamed) {
  using enum StatusCode;
  const auto said = [](std::string Parts::*field, const std::string& value) {
    Parts parts = sentencepiece();
    parts.*field = value;
    const auto result = Tokenizer::from_tokenizer_json(parts.json(), "t.json");
    EXPECT_FALSE(result.ok()) << value;
    EXPECT_EQ(result.status().code(), kUnsupported);
    return result.status().message();
  };
  EXPECT_THAT(said(&Parts::normalizer, "null"), HasSubstr("without a part that marks spaces"));
  EXPECT_THAT(said(&Parts::normalizer, R"({"type":"Prepend","prepend":"_"})"), HasSubstr("found '_'"));
  EXPECT_THAT(said(&Parts::normalizer, R"({"type":"NFKC"})"), HasSubstr("'NFKC'"));
  EXPECT_THAT(said(&Parts::pre_tokenizer, R"({"type":"Metaspace","replacement":"\u2581"})"), HasSubstr("splits"));
  EXPECT_THAT(said(&Parts::pre_tokenizer, R"({"type":"ByteLevel"})"), HasSubstr("Metaspace or none"));
  EXPECT_THAT(said(&Parts::decoder, R"({"type":"WordPiece"})"), HasSubstr("'WordPiece'"));
  EXPECT_THAT(said(&Parts::added, R"({"id":1,"content":"<s>","normalized":true})"), HasSubstr("added token '<s>'"));
}

// llama.cpp's rule for GGUF vocabularies: of neighbours that are a token together, the highest score merges first.
TEST(SentencePiece, MergesFollowFromScores) {
  BpeVocab vocab;
  vocab.tokens = {"<unk>", "<s>", "\u2581", "a", "b", "c", "ab", "bc", "abc", "<0x64>"};
  vocab.scores = {0, 0, -9, -9, -9, -9, -2, -1, -3, 0};
  vocab.added = {{0, "<unk>", true}, {1, "<s>", true}};
  vocab.bos = 1;
  vocab.unk = 0;
  vocab.add_bos = true;
  const auto make_vocab = [&] { return Tokenizer::from_vocab(vocab, "m.gguf"); };
  auto t = make_vocab();
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_THAT(ids(**t, "abc"), ElementsAre(2, 8)) << "bc first, then a and bc: any two halves make the token";
  EXPECT_THAT(ids(**t, "abcab"), ElementsAre(2, 8, 6));
  EXPECT_THAT(ids(**t, "d", {.add_bos = true}), ElementsAre(1, 2, 9));
  EXPECT_THAT(ids(**t, "x"), ElementsAre(2, 0)) << "neither a token nor a byte";
  vocab.unk.reset();
  EXPECT_THAT(make_vocab().status().message(), HasSubstr("no token '<0x00>' and no unknown token"));
  vocab.unk = 0;
  vocab.scores[6] = 0;
  EXPECT_THAT(ids(**make_vocab(), "abb"), ElementsAre(2, 6, 4));
  vocab.space_prefix = false;
  EXPECT_THAT(ids(**make_vocab(), "ab"), ElementsAre(6));
  vocab.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(make_vocab().status().message(), HasSubstr("token 7 ('bc') has no finite score"));
  vocab.scores[7] = 0;
  vocab.tokens[7] = std::string(600, 'b');
  EXPECT_THAT(make_vocab().status().message(), HasSubstr("has 600 bytes, the limit is 512"));
}

TEST(Tokenizer, BrokenUtf8IsAnErrorThatSaysWhere) {
  const auto tokenizer = make({});
  std::vector<int32_t> out = {7};
  const Status status = tokenizer->encode("ab\xE4\xBD", {}, out);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("byte 2 is 0xe4"));
  EXPECT_THAT(out, ElementsAre(7)) << "nothing is appended";
}

TEST(Tokenizer, ATextOfGigabytesIsRefusedUnread) {
  const auto tokenizer = make({});
  const std::string_view fake(reinterpret_cast<const char*>(uintptr_t{16}), (size_t{1} << 31) + 1);
  const auto result = tokenizer->encode(fake);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
}

// What a broken or foreign file is answered: the file, the place, what was found, what is supported.
struct BadFile {
  const char* what;
  Parts parts;
  StatusCode code;
  std::vector<std::string> said;
};

Parts with(std::string Parts::*field, const std::string& value) {
  Parts parts;
  parts.*field = value;
  return parts;
}

std::vector<BadFile> bad_files() {
  using enum StatusCode;
  const std::string template_head =
      R"({"type":"TemplateProcessing","special_tokens":{"x":{"id":"x","ids":[99],"tokens":["x"]}},"single":)";
  return {
      {"unknown key", with(&Parts::model_extra, R"("type2":0,)"), kOk, {}},  // unknown keys are nothing bad
      {"byte_fallback in a byte-level file",
       with(&Parts::model_extra, R"("byte_fallback":true,)"),
       kUnsupported,
       {"pre_tokenizer", "'ByteLevel'", "Metaspace or none"}},
      {"dropout", with(&Parts::model_extra, R"("dropout":0.1,)"), kUnsupported, {"model.dropout"}},
      {"suffix",
       with(&Parts::model_extra, R"("end_of_word_suffix":"</w>",)"),
       kUnsupported,
       {"end_of_word_suffix", "</w>"}},
      {"unk", with(&Parts::model_extra, R"("unk_token":"zz",)"), kInvalidData, {"unk_token 'zz'"}},
      {"vocab list", with(&Parts::vocab, R"([["a",0.5]])"), kInvalidData, {"model.vocab", "object"}},
      {"id text", with(&Parts::vocab, R"({"a":"0"})"), kInvalidData, {"model.vocab.a"}},
      {"id negative", with(&Parts::vocab, R"({"a":-1})"), kInvalidData, {"-1"}},
      {"id huge", with(&Parts::vocab, R"({"a":0,"b":1,"ab":999999999})"), kInvalidData, {"999999999"}},
      {"id twice", with(&Parts::vocab, R"({"a":0,"b":0,"ab":1})"), kInvalidData, {"two tokens have the id 0"}},
      {"merge unknown", with(&Parts::merges, R"([["a","z"]])"), kInvalidData, {"merge 0", "'z'"}},
      {"merge three", with(&Parts::merges, R"(["a b c"])"), kInvalidData, {"model.merges[0]", "two tokens"}},
      {"merge one", with(&Parts::merges, R"([["a"]])"), kInvalidData, {"model.merges[0]", "expected 2"}},
      {"merges object", with(&Parts::merges, "{}"), kInvalidData, {"model.merges"}},
      {"normalizer",
       with(&Parts::normalizer, R"({"type":"Lowercase"})"),
       kUnsupported,
       {"normalizer", "'Lowercase'", "NFC"}},
      {"normalizer inside",
       with(&Parts::normalizer,
            R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"_"}]})"),
       kUnsupported,
       {"normalizers[1]", "'Prepend'"}},
      {"metaspace",
       with(&Parts::pre_tokenizer, R"({"type":"Metaspace"})"),
       kUnsupported,
       {"pre_tokenizer", "'Metaspace'"}},
      {"no byte level", with(&Parts::pre_tokenizer, "null"), kUnsupported, {"pre_tokenizer without ByteLevel"}},
      {"split behaviour",
       with(&Parts::pre_tokenizer,
            R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Contiguous","invert":false})"),
       kUnsupported,
       {"'Contiguous'", "Isolated"}},
      {"regex",
       with(&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false})"),
       kUnsupported,
       {"pattern.Regex", "PCRE2"}},
      {"post-processor",
       with(&Parts::post_processor, R"({"type":"BertProcessing"})"),
       kUnsupported,
       {"post_processor", "Bert"}},
      {"template id",
       with(&Parts::post_processor, template_head + R"([{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}]})"),
       kInvalidData,
       {"99"}},
      {"template name",
       with(&Parts::post_processor, template_head + R"([{"SpecialToken":{"id":"y"}},{"Sequence":{"id":"A"}}]})"),
       kInvalidData,
       {"special_tokens", "'y'"}},
      {"template text",
       with(&Parts::post_processor, template_head + R"([{"SpecialToken":{"id":"x"}}]})"),
       kInvalidData,
       {"single", "A is missing"}},
      {"decoder", with(&Parts::decoder, R"({"type":"WordPiece"})"), kUnsupported, {"decoder", "'WordPiece'"}},
      {"added other id",
       with(&Parts::added, R"({"id":3,"content":"ab"})"),
       kInvalidData,
       {"added token 'ab'", "has it as 6"}},
      {"added no id", with(&Parts::added, R"({"content":"x"})"), kInvalidData, {"added_tokens[0]", "'id'"}},
      {"added flag",
       with(&Parts::added, R"({"id":10,"content":"x","special":"yes"})"),
       kInvalidData,
       {"special", "boolean"}},
  };
}

TEST(TokenizerJson, BadFilesAreAnsweredByName) {
  for (const BadFile& bad : bad_files()) {
    const auto tokenizer = Tokenizer::from_tokenizer_json(bad.parts.json(), "dir/tokenizer.json");
    if (bad.code == StatusCode::kOk) {
      EXPECT_TRUE(tokenizer.ok()) << bad.what << ": " << tokenizer.status().message();
      continue;
    }
    ASSERT_FALSE(tokenizer.ok()) << bad.what;
    EXPECT_EQ(tokenizer.status().code(), bad.code) << bad.what << ": " << tokenizer.status().message();
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("dir/tokenizer.json")) << bad.what;
    for (const std::string& said : bad.said) EXPECT_THAT(tokenizer.status().message(), HasSubstr(said)) << bad.what;
  }
}

TEST(TokenizerJson, ForeignModelsAndBrokenText) {
  const auto status = [](std::string_view json) { return Tokenizer::from_tokenizer_json(json, "t.json").status(); };
  EXPECT_THAT(status(R"({"model":{"type":"Unigram","vocab":[]}})").message(), HasSubstr("model.type: found 'Unigram'"));
  EXPECT_EQ(status(R"({"model":{"type":"WordPiece","vocab":{}}})").code(), StatusCode::kUnsupported);
  EXPECT_THAT(status(R"({"model":{"vocab":{}}})").message(), HasSubstr("without merges"));
  EXPECT_THAT(status("{}").message(), HasSubstr("'model'"));
  EXPECT_EQ(status("").code(), StatusCode::kInvalidData);
  EXPECT_EQ(status("[1,2]").code(), StatusCode::kInvalidData);
  EXPECT_EQ(status(R"({"model":)").code(), StatusCode::kInvalidData);
}

BpeVocab small_vocab() {
  BpeVocab vocab;
  vocab.tokens = {"a", "b", "ab", "Ġ", "<end>", "<think>"};
  vocab.merges = {"a b"};
  vocab.added = {{4, "<end>", true}, {5, "<think>", false}};
  vocab.pre = "qwen2";
  vocab.bos = 4;
  vocab.eos = 4;
  return vocab;
}

TEST(TokenizerVocab, FromPlainArrays) {
  BpeVocab vocab = small_vocab();
  vocab.add_bos = true;
  vocab.add_eos = true;
  const auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "model.gguf");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT(ids(**tokenizer, "ab<think>a<end>"), ElementsAre(2, 5, 0, 4));
  EXPECT_THAT(ids(**tokenizer, "a<end>", {.special_tokens = false}), ElementsAre(0));
  EXPECT_THAT(ids(**tokenizer, "a", {.special_tokens = true, .add_bos = true}), ElementsAre(4, 0, 4));
  EXPECT_EQ((*tokenizer)->eos(), 4);
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "qwen2");
}

TEST(TokenizerVocab, BadOnesAreAnsweredByName) {
  const auto message = [](auto change) {
    BpeVocab vocab = small_vocab();
    change(vocab);
    const auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "model.gguf");
    EXPECT_FALSE(tokenizer.ok());
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("model.gguf"));
    return tokenizer.status().message();
  };
  EXPECT_THAT(message([](BpeVocab& v) { v.pre = "tekken"; }), AllOf(HasSubstr("'tekken'"), HasSubstr("gpt-2, ")));
  EXPECT_THAT(message([](BpeVocab& v) { v.eos = 77; }),
              AllOf(HasSubstr("end-of-sequence token is 77"), HasSubstr("6 tokens")));
  EXPECT_THAT(message([](BpeVocab& v) { v.added[0].id = 6; }), HasSubstr("'<end>' has the id 6"));
  EXPECT_THAT(message([](BpeVocab& v) { v.merges = {"ab"}; }), HasSubstr("merge 0"));
  EXPECT_THAT(message([](BpeVocab& v) { v.merges = {"b a"}; }), HasSubstr("'ba' is not a token"));
  EXPECT_THAT(message([](BpeVocab& v) { v.tokens[0] = "\xE4"; }), HasSubstr("token 0"));
  EXPECT_THAT(message([](BpeVocab& v) { v.merges = {"a \xFF"}; }), HasSubstr("merge 0"));
  EXPECT_THAT(message([](BpeVocab& v) { v.added[1].text = "\x80"; }), HasSubstr("added token 5"));
}

TEST(TokenizerVocab, PreTokenisersByName) {
  for (const char* pre :
       {"gpt-2", "phi-2", "smollm", "qwen2", "deepseek-r1-qwen", "qwen35", "llama-bpe", "default", ""}) {
    BpeVocab vocab = small_vocab();
    vocab.pre = pre;
    const auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "model.gguf");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), *pre == '\0' ? "default" : pre);
    EXPECT_THAT(ids(**tokenizer, "ab ab"), ElementsAre(2, 3, 2));
  }
}

}  // namespace
}  // namespace halfbyte
