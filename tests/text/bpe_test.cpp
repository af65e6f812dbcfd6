#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

namespace halfbyte {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Merges = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<const BpeModel> make_model(const std::vector<std::string>& tokens, const Merges& merges,
                                           const BpeModel::Builder::Options& options = {}) {
  BpeModel::Builder builder;
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_TRUE(builder.add_token(static_cast<int32_t>(i), tokens[i]).ok());
  for (const auto& [left, right] : merges) EXPECT_TRUE(builder.add_merge(left, right).ok());
  auto model = builder.build(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(model).value();
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view piece, BpeWork* work = nullptr) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  model.encode(piece, scratch, ids);
  if (work) *work = scratch.work;
  return ids;
}

TEST(BpeModel, JoinsTheLowestRankFirstAndTheLeftmostOfEquals) {
  const auto model = make_model({"a", "b", "c", "ab", "bc", "aa"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}});
  EXPECT_THAT(encode(*model, "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(*model, "aab"), ElementsAre(0, 3));
  EXPECT_THAT(encode(*model, "aaa"), ElementsAre(5, 0));
  EXPECT_THAT(encode(*model, ""), ElementsAre());
}

TEST(BpeModel, ATokenThatMergesCannotReachIsNotUsed) {
  const auto model = make_model({"a", "b", "c", "ab", "bc", "abc"}, {{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_THAT(encode(*model, "abc"), ElementsAre(0, 4));
  const auto whole = make_model({"a", "b", "c", "ab", "bc", "abc"}, {{"b", "c"}, {"a", "b"}, {"ab", "c"}},
                                {.unk_token = {}, .fuse_unk = false, .ignore_merges = true});
  EXPECT_THAT(encode(*whole, "abc"), ElementsAre(5));
  EXPECT_THAT(encode(*whole, "abca"), ElementsAre(0, 4, 0));
}

TEST(BpeModel, SaysWhichWayAPieceWent) {
  const auto model = make_model({"a", "b", "ab"}, {{"a", "b"}});
  BpeScratch scratch;
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) model->encode("ab", scratch, ids);
  EXPECT_EQ(scratch.work.whole_pieces, 3u);
  EXPECT_EQ(scratch.work.merged_pieces, 0u);
  const uint64_t lookups = scratch.work.pair_lookups;
  model->encode("ab", scratch, ids);
  EXPECT_EQ(scratch.work.pair_lookups, lookups) << "the second time a whole piece needs no merges";
  model->encode("ba", scratch, ids);
  EXPECT_EQ(scratch.work.merged_pieces, 1u);
}

TEST(BpeModel, OfAPairListedTwiceTheLastRankCounts) {
  const auto model = make_model({"a", "b", "c", "ab", "bc"}, {{"a", "b"}, {"b", "c"}, {"a", "b"}});
  EXPECT_THAT(encode(*model, "abc"), ElementsAre(0, 4));
}

TEST(BpeModel, BytesWithoutATokenAreUnknownOrDropped) {
  const std::vector<std::string> tokens = {"a", "b", "<", "ab"};
  const Merges merges = {{"a", "b"}};
  const auto dropping = make_model(tokens, merges);
  EXPECT_THAT(encode(*dropping, "xaxbx"), ElementsAre(3)) << "what is left joins, as in the tokenizers package";
  EXPECT_EQ(dropping->missing_bytes().size(), 253u);
  const auto unknown = make_model(tokens, merges, {.unk_token = "<", .fuse_unk = false, .ignore_merges = false});
  EXPECT_THAT(encode(*unknown, "axxb"), ElementsAre(0, 2, 2, 1));
  const auto fused = make_model(tokens, merges, {.unk_token = "<", .fuse_unk = true, .ignore_merges = false});
  EXPECT_THAT(encode(*fused, "axxbx"), ElementsAre(0, 2, 1, 2));
}

TEST(BpeModel, TokensAreBytesOfTheAlphabet) {
  BpeModel::Builder builder;
  ASSERT_TRUE(builder.add_token(0, "Ġ").ok());     // U+0120: a space
  ASSERT_TRUE(builder.add_token(1, "é").ok());     // U+00E9: the byte 0xE9
  ASSERT_TRUE(builder.add_token(2, "日本").ok());  // outside the alphabet: plain text, never encoded
  ASSERT_TRUE(builder.add_token(7, "Ċ").ok());     // with a gap before
  ASSERT_TRUE(builder.add_added_token(5, "<x y>").ok());
  const auto built = builder.build({});
  ASSERT_TRUE(built.ok()) << built.status().message();
  const BpeModel& model = **built;
  EXPECT_EQ(model.token_bytes(0), " ");
  EXPECT_EQ(model.token_bytes(1), "\xE9");
  EXPECT_EQ(model.token_bytes(2), "日本");
  EXPECT_EQ(model.token_bytes(3), "");
  EXPECT_EQ(model.token_bytes(5), "<x y>");
  EXPECT_EQ(model.token_bytes(8), "");
  EXPECT_EQ(model.token_bytes(-1), "");
  EXPECT_EQ(model.vocab_size(), 8);
  EXPECT_EQ(model.find("\n"), 7);
  EXPECT_EQ(model.find("日本"), std::nullopt);
  EXPECT_EQ(model.find("<x y>"), std::nullopt);
}

TEST(BpeModel, EveryByteHasACharacter) {
  std::string bytes, all;
  for (char32_t c = 0; c < 0x200; ++c) {
    std::string text;
    if (c < 0x80) {
      text = std::string(1, static_cast<char>(c));
    } else {
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
    if (bytes_from_alphabet(text, bytes)) all += bytes;
  }
  std::sort(all.begin(), all.end(), [](char a, char b) { return static_cast<uint8_t>(a) < static_cast<uint8_t>(b); });
  ASSERT_EQ(all.size(), 256u);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(static_cast<uint8_t>(all[i]), i);
}

TEST(BpeBuilder, RefusesWhatDoesNotFitTogether) {
  const auto message = [](auto fill) {
    BpeModel::Builder builder;
    Status status = fill(builder);
    if (status.ok()) status = builder.build({}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidData);
    return status.message();
  };
  const auto add = [](BpeModel::Builder& b, std::initializer_list<std::pair<int32_t, const char*>> tokens) {
    for (const auto& [id, text] : tokens) {
      if (Status status = b.add_token(id, text); !status.ok()) return status;
    }
    return Status();
  };
  using Builder = BpeModel::Builder;
  EXPECT_THAT(message([&](Builder& b) { return add(b, {{-1, "a"}}); }), HasSubstr("negative id -1"));
  EXPECT_THAT(message([&](Builder& b) { return add(b, {{3, "a"}, {3, "b"}}); }), HasSubstr("two tokens have the id 3"));
  EXPECT_THAT(message([&](Builder& b) { return add(b, {{2'000'000'000, "a"}}); }), HasSubstr("only 1 tokens"));
  EXPECT_THAT(message([&](Builder& b) {
                HB_TRY(add(b, {{0, "a"}}));
                return b.add_merge("a", "x");
              }),
              HasSubstr("merge 0 ('a' and 'x'): 'x' is not a token"));
  EXPECT_THAT(message([&](Builder& b) {
                HB_TRY(add(b, {{0, "a"}, {1, "b"}}));
                return b.add_merge("a", "b");
              }),
              HasSubstr("'ab' is not a token"));
  EXPECT_THAT(message([&](Builder& b) { return b.add_merge("日", "本"); }), HasSubstr("byte-level alphabet"));
  EXPECT_THAT(message([&](Builder& b) {
                HB_TRY(add(b, {{0, "a"}, {1, "b"}}));
                return b.add_added_token(1, "a");
              }),
              HasSubstr("added token 'a' has the id 1, but the vocabulary has it as 0"));
  EXPECT_THAT(message([&](Builder& b) {
                HB_TRY(add(b, {{0, "a"}, {1, "b"}}));
                return b.add_added_token(1, "<new>");
              }),
              HasSubstr("added token '<new>' has the id 1, which is 'b' in the vocabulary"));
}

// The definition, without any cleverness.
std::vector<int32_t> merged_by_definition(std::string_view piece, const std::vector<std::string>& tokens,
                                          const Merges& merges) {
  std::map<std::string, int32_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<int32_t>(i);
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[merges[i]] = i;
  std::vector<std::string> symbols;
  for (const char c : piece) symbols.emplace_back(1, c);
  while (true) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ranks.find({symbols[i], symbols[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        at = i;
      }
    }
    if (best == SIZE_MAX) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  std::vector<int32_t> out;
  for (const std::string& symbol : symbols) out.push_back(ids.at(symbol));
  return out;
}

TEST(BpeModel, ShortAndLongPiecesFollowTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    Merges merges;
    for (size_t n = random() % 30; n > 0; --n) {
      const std::pair<std::string, std::string> merge = {tokens[random() % tokens.size()],
                                                         tokens[random() % tokens.size()]};
      const std::string joined = merge.first + merge.second;
      if (joined.size() > 12) continue;
      merges.push_back(merge);
      if (std::find(tokens.begin(), tokens.end(), joined) == tokens.end()) tokens.push_back(joined);
    }
    std::shuffle(merges.begin(), merges.end(), random);  // a merge may come before those that make its parts
    const auto model = make_model(tokens, merges);
    for (const size_t length : {1, 2, 7, 63, 64, 65, 66, 200}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece.push_back("abc"[random() % 3]);
      BpeWork work;
      ASSERT_EQ(encode(*model, piece, &work), merged_by_definition(piece, tokens, merges)) << piece;
      // Long pieces, and only they, use the queue.
      EXPECT_EQ(length > 64 ? work.ranks_compared : work.queue_pushes, 0u);
    }
  }
}

// 10 MB of one letter, with the merges that such runs have: the work is counted, so that no clock decides.
TEST(BpeModel, AHugePieceTakesLinearlyManySteps) {
  std::vector<std::string> tokens = {"a", "b"};
  Merges merges;
  for (std::string run = "a"; run.size() <= 64; run += run) {
    tokens.push_back(run + run);
    merges.push_back({run, run});
  }
  const auto model = make_model(tokens, merges);
  constexpr size_t kLength = 10'000'000;
  std::string piece(kLength, 'a');
  piece[kLength / 2] = 'b';
  BpeWork work;
  const std::vector<int32_t> ids = encode(*model, piece, &work);
  EXPECT_LE(work.pair_lookups, 3 * kLength) << "each join looks up two pairs";
  EXPECT_LE(work.queue_pushes, 3 * kLength);
  EXPECT_EQ(work.ranks_compared, 0u);
  size_t length = 0;
  for (const int32_t id : ids) length += model->token_bytes(id).size();
  EXPECT_EQ(length, kLength);
  EXPECT_LT(ids.size(), kLength / 128 + 20);
}

TEST(BpeModel, ThreadsShareAModel) {
  const auto model = make_model({"a", "b", "c", "ab", "bc", "abc"}, {{"a", "b"}, {"ab", "c"}});
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) result = encode(*model, i % 2 ? "abc" : "cab");
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_THAT(result, ElementsAre(5));
}

}  // namespace
}  // namespace halfbyte
