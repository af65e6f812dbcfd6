// What a Tokenizer is made of: the readers of tokenizer.json and of GGUF vocabularies fill this in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_added.h"

namespace halfbyte {

class JsonValue;

// SentencePiece's space in front of text: before which parts, and whether before a part that begins with one, too.
struct SpacePrefix {
  enum class Where : uint8_t { kNowhere, kText, kEveryPart };
  Where where = Where::kNowhere;
  bool always = true;
};

// Working memory of one encode() call.
struct EncodeScratch {
  std::vector<TextPart> raw_parts, normal_parts;
  std::string normal;  // the normalised text of one part
  std::vector<Piece> pieces, stage_pieces;
  BpeScratch bpe;
};

struct Tokenizer::Impl {
  std::string name;  // of the file, for messages
  std::unique_ptr<const BpeModel> model;
  std::vector<AddedToken> added;
  std::unordered_map<std::string, int32_t> added_ids;
  std::vector<bool> special;             // by id
  AddedTokenMatcher raw_matcher;         // added tokens searched in the text as it is
  AddedTokenMatcher normalized_matcher;  // and those searched in normalised text
  bool nfc = false;
  bool add_prefix_space = false;  // a space before each part that does not begin with one
  bool sentencepiece = false;     // no pre-tokeniser; the next two belong to it
  SpacePrefix space_prefix;
  bool drops_first_space = false;  // in decoded text
  Pretokenizer pretokenizer;
  std::string pre_tokenizer_name;
  std::vector<int32_t> prefix, suffix;  // of EncodeOptions.add_bos
  std::optional<int32_t> bos, eos;

  // Of tokenizer.json, behind the model: normalizer, pre_tokenizer, decoder.
  Status read_byte_level(const JsonValue& root);
  Status read_sentencepiece(const JsonValue& root, const std::vector<AddedTokenRule>& rules);
  // Enters the added tokens; after the model and nfc are set.
  Status add_tokens(const std::vector<AddedTokenRule>& rules);
  Status encode(std::string_view text, const EncodeOptions& options, EncodeScratch& scratch,
                std::vector<int32_t>& out) const;
  // tokenizer_runs.cpp
  Status encode_runs(std::span<const TextRun> runs, std::span<const int32_t> control, EncodeScratch& scratch,
                     std::vector<int32_t>& out) const;

 private:
  Status check_text(std::string_view text) const;
  // `begins`: the part is the text's beginning.
  Status encode_part(std::string_view text, bool begins, bool special_tokens, EncodeScratch& scratch,
                     std::vector<int32_t>& out) const;
  Status encode_plain(std::string_view text, EncodeScratch& scratch, std::vector<int32_t>& out) const;
  void encode_sentencepiece(std::string_view text, bool begins, EncodeScratch& scratch,
                            std::vector<int32_t>& out) const;
};

}  // namespace halfbyte
